/** Every setting of the service: name, default, meaning and accepted texts. Read once at the start. */
import type { Effect } from "effect"
import { docker, hosting, logging, otlp } from "./common.ts"
import {
  allocations,
  databaseUrl,
  file,
  hostOrNone,
  lifetime,
  networks,
  number,
  oneOf,
  optionalSecret,
  origins,
  path,
  portOrNone,
  text,
  whole,
  yesNo,
  yesNoAuto
} from "./kinds.ts"
import { readAll, secret, setting, viewAll } from "./Setting.ts"

export const settings = {
  host: setting("MUSTER_HOST", "127.0.0.1", text).means(
    "Address that the service listens on. Set it to `0.0.0.0` or an address of the host to admit other machines, together with `MUSTER_TLS_CERT`."
  ),
  port: setting("MUSTER_PORT", "5620", whole(0, 65535)).means(
    "Port that the service listens on. Change it if the port is taken; 0 takes a free port, which the log names."
  ),
  adminKey: secret("APP_ADMIN_API_KEY", "", optionalSecret).means(
    "Admin key from outside. Set it, with at least 24 characters, if another program has to know the key before the first start; otherwise use `muster keys create`."
  ),
  dataDir: setting("MUSTER_DATA_DIR", "./data", path).means(
    "Folder of the database, the first admin key, the secret key and the files of the embedded node. Set it to a folder of its own, such as `/var/lib/muster`."
  ),
  secretFile: setting("MUSTER_SECRET_FILE", "", file).means(
    "File of at least 32 random bytes that encrypts the tokens of nodes. Unset: `secret.key` in the data folder, made at the first start. Replicas need copies of one file."
  ),
  blueprintsDir: setting("MUSTER_BLUEPRINTS_DIR", "./blueprints", path).means(
    "Folder of blueprints and mixins."
  ),
  softwareDir: setting("MUSTER_SOFTWARE_DIR", "./software", path).means("Folder of software definitions."),
  blueprintSources: setting("MUSTER_BLUEPRINT_SOURCES", "", file).means(
    "YAML file that lists git repositories. The service syncs them into the folders of blueprints and software. Unset: no syncs."
  ),
  sourcesMaxMib: setting("MUSTER_SOURCES_MAX_MIB", "1024", whole(1, 1_048_576)).means(
    "Largest download of one git repository of definitions, in MiB. A sync that exceeds it fails. Raise it for a large repository."
  ),
  databaseUrl: secret("MUSTER_DATABASE_URL", "", databaseUrl).means(
    "Database of the service. Unset: SQLite in the data folder. Set a PostgreSQL URL to run replicas."
  ),
  databasePool: setting("MUSTER_DATABASE_POOL", "10", whole(1, 1000)).means(
    "Largest number of connections to PostgreSQL. Each replica opens one more for notifications. Lower it if the database admits few connections."
  ),
  databaseTimeout: setting("MUSTER_DATABASE_TIMEOUT", "650", whole(100, 60_000)).means(
    "Milliseconds without a response after which PostgreSQL counts as unavailable and requests fail with 503. Raise it for a distant or slow database."
  ),
  embeddedNode: setting("MUSTER_EMBEDDED_NODE", "auto", yesNoAuto).means(
    "Whether the service runs an embedded node. `auto`: yes on SQLite, no on PostgreSQL. Set `false` for a control plane only; a service with an embedded node must be the only one on its database."
  ),
  embeddedAllocations: setting("MUSTER_EMBEDDED_ALLOCATIONS", "127.0.0.1:25565-25664", allocations).means(
    "Addresses and ports for servers on the embedded node. Set it to an address of the host to admit players from the network; the alias is the host name that callers show to players."
  ),
  embeddedOnShutdown: setting("MUSTER_EMBEDDED_ON_SHUTDOWN", "stop", oneOf("stop", "keep")).means(
    "Action of the embedded node on shutdown: `stop` its servers, or `keep` them for the next start. Set `keep` to restart or upgrade the service without an interruption for players."
  ),
  embeddedRuntime: setting("MUSTER_EMBEDDED_RUNTIME", "auto", oneOf("auto", "process", "docker")).means(
    "Runtimes of the embedded node. `process`: plain processes only. `docker`: containers for software that has an image, processes for the rest. `auto`: as `docker`, without a warning if no engine responds."
  ),
  ...docker,
  nodeName: setting("MUSTER_NODE_NAME", "local", text).means("Display name of the embedded node."),
  nodeLocation: setting("MUSTER_NODE_LOCATION", "local", text).means(
    "Location of the embedded node, which `placement.locations` of a blueprint selects."
  ),
  nodeUrl: setting("MUSTER_NODE_URL", "", text).means(
    "Address that the API shows for the embedded node. Unset: the address of the service."
  ),
  ...hosting,
  placement: setting("MUSTER_PLACEMENT", "spread", oneOf("spread", "binpack", "round-robin")).means(
    "Strategy of the load balancer. `spread`: the node with the lowest share of reserved memory. `binpack`: the node with the highest share that still fits. `round-robin`: the nodes in turn, by name."
  ),
  overcommitMemory: setting("MUSTER_OVERCOMMIT_MEMORY", "1", number(0.1, 1000)).means(
    "Memory that the load balancer may reserve on a node, as a multiple of its memory. Raise it if servers use less than their limit."
  ),
  overcommitDisk: setting("MUSTER_OVERCOMMIT_DISK", "1", number(0.1, 1000)).means(
    "Disk that the load balancer may reserve on a node, as a multiple of its disk. Raise it if servers use less than their limit."
  ),
  nodeLostAfter: setting("MUSTER_NODE_LOST_AFTER", "600", whole(1, 31_536_000)).means(
    "Seconds without a heartbeat after which the control plane deletes the servers of a node that are not saved. Raise it if nodes are off for longer."
  ),
  nodeHeartbeatTimeout: setting("MUSTER_NODE_HEARTBEAT_TIMEOUT", "30", whole(1, 3600)).means(
    "Seconds without a heartbeat after which a node is `away`. Keep it well above the heartbeat interval of the nodes (`MUSTER_NODE_HEARTBEAT`, 10). Raise it for unreliable networks."
  ),
  nodeTokenHours: setting("MUSTER_NODE_TOKEN_HOURS", "24", number(0.0001, 8760)).means(
    "Hours after which a node gets a new token. Calls to the node continue meanwhile."
  ),
  nodeCa: setting("MUSTER_NODE_CA", "", file).means(
    "Authorities (PEM) that the service accepts for the certificates of daemons. Unset: those of the system. Set it for a private authority."
  ),
  nodeNetworks: setting("MUSTER_NODE_NETWORKS", "", networks).means(
    "Networks in which nodes on other machines may be, such as `10.0.0.0/8`. The service registers and calls no node elsewhere. Unset: all except link-local addresses and the metadata services of clouds, which return credentials of the host. Set it to the networks of your nodes."
  ),
  nodeClientCert: setting("MUSTER_NODE_CLIENT_CERT", "", file).means(
    "Certificate (PEM) that the service presents to daemons. Set it, on all replicas, if the nodes have `MUSTER_NODE_CLIENT_CA`."
  ),
  nodeClientKey: setting("MUSTER_NODE_CLIENT_KEY", "", file).means(
    "Private key (PEM) of `MUSTER_NODE_CLIENT_CERT`."
  ),
  tlsCert: setting("MUSTER_TLS_CERT", "", file).means(
    "Certificate (PEM) of the service. With it, the service speaks HTTPS only. Set it if the service listens beyond loopback without a TLS proxy."
  ),
  tlsKey: setting("MUSTER_TLS_KEY", "", file).means("Private key (PEM) of `MUSTER_TLS_CERT`."),
  requireTls: setting("MUSTER_REQUIRE_TLS", "false", yesNo).means(
    "Whether the service refuses plain HTTP beyond loopback: to listen, to register nodes and to call nodes. Set `true` once all certificates are in place."
  ),
  eventsKeepHours: setting("MUSTER_EVENTS_KEEP_HOURS", "24", number(0.01, 8760)).means(
    "Hours for which events can be replayed. Raise it if clients are offline for longer."
  ),
  eventsKeepCount: setting("MUSTER_EVENTS_KEEP_COUNT", "1000000", whole(1, 1_000_000_000)).means(
    "Number of events that can be replayed. Lower it to bound the size of the database."
  ),
  bodyLimit: setting("MUSTER_BODY_LIMIT", "1048576", whole(1024, 1_073_741_824)).means(
    "Largest request body, in bytes. A larger one is 413."
  ),
  crashesKeep: setting("MUSTER_CRASHES_KEEP", "20", whole(1, 10_000)).means(
    "Crashes of each blueprint that are kept, with their last 200 console lines, beside the newest 5 of each server that exists. Raise it if crashes of a large fleet are examined later."
  ),
  keepDeleted: setting("MUSTER_KEEP_DELETED", "7d", lifetime).means(
    "Time for which the files and the record of a deleted saved server that has run are kept, so that it can be undeleted; `0`: they are removed at once. Their node removes the oldest first if its disk is needed."
  ),
  auditKeep: setting("MUSTER_AUDIT_KEEP", "90", whole(1, 36_500)).means(
    "Days for which entries of the audit log are kept. Raise it if your rules ask for more; an entry takes about 1 KB of the database."
  ),
  auditKeepMib: setting("MUSTER_AUDIT_KEEP_MIB", "1024", whole(1, 1_048_576)).means(
    "Largest audit log, in MiB of the database. Beyond it the oldest entries are deleted, however old they are. Raise it if `muster_audit_bytes` reaches it before the days of `MUSTER_AUDIT_KEEP`."
  ),
  rateLimit: setting("MUSTER_RATE_LIMIT", "0", whole(0, 1_000_000_000)).means(
    "Requests per minute and key, counted by each replica. 0: no limit. Set it if a client can overload the service."
  ),
  streamsPerKey: setting("MUSTER_STREAMS_PER_KEY", "100", whole(1, 1_000_000)).means(
    "Event streams and consoles that one key may have open, at each replica. Raise it for a panel that opens a stream for each of its users."
  ),
  streams: setting("MUSTER_STREAMS", "10000", whole(1, 1_000_000)).means(
    "Event streams and consoles that may be open, at each replica; at most half of the files that the process may open. Raise it together with `ulimit -n`."
  ),
  corsOrigins: setting("MUSTER_CORS_ORIGINS", "", origins).means(
    "Origins of browser pages that may call the API. Unset: none. Set it for a panel in the browser."
  ),
  trustedProxies: setting("MUSTER_TRUSTED_PROXIES", "", networks).means(
    "Networks of proxies whose `X-Forwarded-For` the service trusts, such as `10.0.0.0/8`. Unset: none. Set it behind a proxy; otherwise all clients have the address of the proxy."
  ),
  sftpPort: setting("MUSTER_SFTP_PORT", "", portOrNone).means(
    "Port of SFTP, by which users reach the files of servers. Unset: SFTP is off. Set it, to the same port on all replicas, for users who work with an SFTP program; 0 takes a free port, which the log names."
  ),
  sftpHost: setting("MUSTER_SFTP_HOST", "", text).means(
    "Address that SFTP listens on. Unset: the address of `MUSTER_HOST`. Set it if the service is behind a proxy and SFTP is not."
  ),
  sftpAddress: setting("MUSTER_SFTP_ADDRESS", "", hostOrNone).means(
    "Address at which users reach SFTP, as a host or `host:port`. Unset: the host of the request, and the port of SFTP. Set it if a proxy or a port mapping is in between; the API, the command line and the dashboard show it."
  ),
  webhooks: setting("MUSTER_WEBHOOKS", "", file).means(
    "YAML file that defines webhooks. Unset: only those of the API. Set it, with the same file for all replicas, to keep webhooks with the rest of the configuration."
  ),
  webhookAllowPrivate: setting("MUSTER_WEBHOOK_ALLOW_PRIVATE", "false", yesNo).means(
    "Whether webhooks may be sent to loopback, link-local and private addresses. Set `true` if a receiver is in your own network and all holders of admin keys may reach it."
  ),
  backupTargets: setting("MUSTER_BACKUP_TARGETS", "", file).means(
    "YAML file that defines targets of backups. Unset: only those of the API. Set it, with the same file for all replicas, to keep targets with the rest of the configuration."
  ),
  backupAllowPrivate: setting("MUSTER_BACKUP_ALLOW_PRIVATE", "false", yesNo).means(
    "Whether targets of backups may have loopback, link-local and private addresses. Set `true` if the S3 server is in your own network and all holders of admin keys may reach it."
  ),
  publicPages: setting("MUSTER_PUBLIC_PAGES", "all", oneOf("banner", "all")).means(
    "Content of the pages `/` and `/nodes`, which need no key. `all`: uptime, nodes, servers by status and warnings, and every field of a node. `banner`: the banner alone, and name, location and state of nodes. Set `banner` if strangers reach the service."
  ),
  shutdownGrace: setting("MUSTER_SHUTDOWN_GRACE", "0", number(0, 3600)).means(
    "Seconds between the first 503 of `readyz` and the end of the service. Set it, behind a load balancer, to twice the time that the balancer takes to notice."
  ),
  ...otlp,
  ...logging
} as const

/** The settings of this process with their origins, and without secrets. */
export const settingViews = viewAll(settings)

export const loadServiceSettings = readAll(settings)

export type ServiceSettings = Effect.Success<typeof loadServiceSettings>
