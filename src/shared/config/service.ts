/** Every setting of the service: name, default, meaning and accepted texts. Read once at the start. */
import { Context, Effect, Layer, Option, Redacted } from "effect"
import { allocations } from "./allocations.ts"
import {
  databaseUrl,
  file,
  list,
  networks,
  number,
  oneOf,
  optionalAddress,
  origins,
  path,
  text,
  uids,
  whole,
  yesNo,
  yesNoAuto
} from "./kinds.ts"
import { type InvalidSetting, readAll, type SettingValue, secret, setting, viewAll } from "./Setting.ts"
import type { StartError } from "./StartError.ts"

export const settings = {
  host: setting(
    "MUSTER_HOST",
    "127.0.0.1",
    "Address that the service listens on. Set it to `0.0.0.0` or an address of the host to admit other machines, together with `MUSTER_TLS_CERT`.",
    text
  ),
  port: setting(
    "MUSTER_PORT",
    "5620",
    "Port that the service listens on. Change it if the port is taken; 0 takes a free port, which the log names.",
    whole(0, 65535)
  ),
  adminKey: secret(
    "APP_ADMIN_API_KEY",
    "",
    "Admin key from outside. Set it, with at least 24 characters, if another program has to know the key before the first start; otherwise use `muster keys create`.",
    text
  ),
  dataDir: setting(
    "MUSTER_DATA_DIR",
    "./data",
    "Folder of the database, the first admin key, the secret key and the files of the embedded node. Set it to a folder of its own, such as `/var/lib/muster`.",
    path
  ),
  secretFile: setting(
    "MUSTER_SECRET_FILE",
    "",
    "File of at least 32 random bytes that encrypts the tokens of nodes. Unset: `secret.key` in the data folder, made at the first start. Replicas need copies of one file.",
    file
  ),
  blueprintsDir: setting("MUSTER_BLUEPRINTS_DIR", "./blueprints", "Folder of blueprints and mixins.", path),
  softwareDir: setting("MUSTER_SOFTWARE_DIR", "./software", "Folder of software definitions.", path),
  blueprintSources: setting(
    "MUSTER_BLUEPRINT_SOURCES",
    "",
    "YAML file that lists git repositories. The service syncs them into the folders of blueprints and software. Unset: no syncs.",
    file
  ),
  sourcesMaxMib: setting(
    "MUSTER_SOURCES_MAX_MIB",
    "1024",
    "Largest download of one git repository of definitions, in MiB. A sync that exceeds it fails. Raise it for a large repository.",
    whole(1, 1_048_576)
  ),
  databaseUrl: secret(
    "MUSTER_DATABASE_URL",
    "",
    "Database of the service. Unset: SQLite in the data folder. Set a PostgreSQL URL to run replicas.",
    databaseUrl
  ),
  databasePool: setting(
    "MUSTER_DATABASE_POOL",
    "10",
    "Largest number of connections to PostgreSQL. Each replica opens one more for notifications. Lower it if the database admits few connections.",
    whole(1, 1000)
  ),
  databaseTimeout: setting(
    "MUSTER_DATABASE_TIMEOUT",
    "650",
    "Milliseconds without a response after which PostgreSQL counts as unavailable and requests fail with 503. Raise it for a distant or slow database.",
    whole(100, 60_000)
  ),
  embeddedNode: setting(
    "MUSTER_EMBEDDED_NODE",
    "auto",
    "Whether the service runs an embedded node. `auto`: yes on SQLite, no on PostgreSQL. Set `false` for a control plane only; a service with an embedded node must be the only one on its database.",
    yesNoAuto
  ),
  embeddedAllocations: setting(
    "MUSTER_EMBEDDED_ALLOCATIONS",
    "127.0.0.1:25565-25664",
    "Addresses and ports for servers on the embedded node. Set it to an address of the host to admit players from the network; the alias is the host name that callers show to players.",
    allocations
  ),
  embeddedOnShutdown: setting(
    "MUSTER_EMBEDDED_ON_SHUTDOWN",
    "stop",
    "Action of the embedded node on shutdown: `stop` its servers, or `keep` them for the next start. Set `keep` to restart or upgrade the service without an interruption for players.",
    oneOf("stop", "keep")
  ),
  embeddedRuntime: setting(
    "MUSTER_EMBEDDED_RUNTIME",
    "auto",
    "Runtimes of the embedded node. `process`: plain processes only. `docker`: containers for software that has an image, processes for the rest. `auto`: as `docker`, without a warning if no engine responds.",
    oneOf("auto", "process", "docker")
  ),
  dockerSocket: setting(
    "MUSTER_DOCKER_SOCKET",
    "/var/run/docker.sock",
    "Unix socket of the Docker Engine. Set it for an engine whose socket is elsewhere.",
    path
  ),
  dockerPull: setting(
    "MUSTER_DOCKER_PULL",
    "if-not-present",
    "When the node pulls images: `always`, `if-not-present` or `never`. Set `always` for tags that move, `never` for a node without a registry.",
    oneOf("always", "if-not-present", "never")
  ),
  dockerConfig: setting(
    "MUSTER_DOCKER_CONFIG",
    "",
    "File with the logins of image registries, as `docker login` writes it. Unset: `~/.docker/config.json`.",
    file
  ),
  forceOutgoingIp: setting(
    "MUSTER_FORCE_OUTGOING_IP",
    "false",
    "Whether the traffic that a container sends leaves from the address of its allocation (IPv4). Set `true` if the host has several addresses and peers check the sender.",
    yesNo
  ),
  nodeName: setting("MUSTER_NODE_NAME", "local", "Display name of the embedded node.", text),
  nodeLocation: setting(
    "MUSTER_NODE_LOCATION",
    "local",
    "Location of the embedded node, which `placement.locations` of a blueprint selects.",
    text
  ),
  nodeUrl: setting(
    "MUSTER_NODE_URL",
    "",
    "Address that the API shows for the embedded node. Unset: the address of the service.",
    text
  ),
  allowedMounts: setting(
    "MUSTER_ALLOWED_MOUNTS",
    "",
    "Host folders from which blueprints may mount. Unset: none. Set it if a blueprint has `mounts`.",
    list
  ),
  instanceFiles: setting(
    "MUSTER_INSTANCE_FILES",
    "auto",
    "How the node makes the files of an instance from a base: overlay mounts, copies that share blocks (`reflink`), or plain copies. If one does not work, the node uses the next. `auto`: the first that works.",
    oneOf("auto", "overlay", "reflink", "copy")
  ),
  startParallel: setting(
    "MUSTER_START_PARALLEL",
    "2",
    "Servers that a node starts at a time after its return: those that were up when it ended, by `priority` and age. Raise it if the host can start more at once.",
    whole(1, 1000)
  ),
  diskCheck: setting(
    "MUSTER_DISK_CHECK",
    "30",
    "Seconds between two measurements of the disk that servers with a limit use. Without effect where the file system has project quota. Raise it if measurements load the disk.",
    whole(1, 86400)
  ),
  diskReserve: setting(
    "MUSTER_DISK_RESERVE",
    "1024",
    "Free space of a node's disk, in MiB, below which the node stops the servers that have written most of late. At most a twentieth of the disk; 0: no reserve. Raise it if servers can fill the disk within seconds.",
    whole(0, 1_000_000_000)
  ),
  passEnv: setting(
    "MUSTER_PASS_ENV",
    "HTTP_PROXY,HTTPS_PROXY,NO_PROXY,http_proxy,https_proxy,no_proxy,NODE_EXTRA_CA_CERTS,SSL_CERT_FILE,SSL_CERT_DIR,npm_config_registry,NPM_CONFIG_REGISTRY",
    "Environment variables of the daemon that install scripts and servers get, as `NAME` or `PREFIX*`. They get no other. Extend it for proxies, mirrors and licences.",
    list
  ),
  processIsolation: setting(
    "MUSTER_PROCESS_ISOLATION",
    "auto",
    "How plain processes are isolated. `auto`: as far as the host allows, with a warning if it does not. `required`: without isolation the node offers no plain processes. `none`: they run as the user of the daemon. Set `required` if servers are not trusted.",
    oneOf("auto", "required", "none")
  ),
  processUids: setting(
    "MUSTER_PROCESS_UIDS",
    "70000-79999",
    "Range of uids, and gids, that a daemon of root gives to servers and software, one each. Change it if another user of the host has a uid in this range.",
    uids
  ),
  processTasks: setting(
    "MUSTER_PROCESS_TASKS",
    "4096",
    "Processes and threads that the uid of a server or software may have at once, if the daemon gives uids. Lower it for many servers on a small host; raise it if a program cannot make threads.",
    whole(32, 1_000_000)
  ),
  placement: setting(
    "MUSTER_PLACEMENT",
    "spread",
    "Strategy of the load balancer. `spread`: the node with the lowest share of reserved memory. `binpack`: the node with the highest share that still fits. `round-robin`: the nodes in turn, by name.",
    oneOf("spread", "binpack", "round-robin")
  ),
  overcommitMemory: setting(
    "MUSTER_OVERCOMMIT_MEMORY",
    "1",
    "Memory that the load balancer may reserve on a node, as a multiple of its memory. Raise it if servers use less than their limit.",
    number(0.1, 1000)
  ),
  overcommitDisk: setting(
    "MUSTER_OVERCOMMIT_DISK",
    "1",
    "Disk that the load balancer may reserve on a node, as a multiple of its disk. Raise it if servers use less than their limit.",
    number(0.1, 1000)
  ),
  nodeLostAfter: setting(
    "MUSTER_NODE_LOST_AFTER",
    "600",
    "Seconds without a heartbeat after which the control plane deletes the servers of a node that are not saved. Raise it if nodes are off for longer.",
    whole(1, 31_536_000)
  ),
  nodeHeartbeatTimeout: setting(
    "MUSTER_NODE_HEARTBEAT_TIMEOUT",
    "30",
    "Seconds without a heartbeat after which a node is `away`. Keep it well above the heartbeat interval of the nodes (`MUSTER_NODE_HEARTBEAT`, 10). Raise it for unreliable networks.",
    whole(1, 3600)
  ),
  nodeTokenHours: setting(
    "MUSTER_NODE_TOKEN_HOURS",
    "24",
    "Hours after which a node gets a new token. Calls to the node continue meanwhile.",
    number(0.0001, 8760)
  ),
  nodeCa: setting(
    "MUSTER_NODE_CA",
    "",
    "Authorities (PEM) that the service accepts for the certificates of daemons. Unset: those of the system. Set it for a private authority.",
    file
  ),
  nodeNetworks: setting(
    "MUSTER_NODE_NETWORKS",
    "",
    "Networks in which nodes on other machines may be, such as `10.0.0.0/8`. The service registers and calls no node elsewhere. Unset: all except link-local addresses and the metadata services of clouds, which return credentials of the host. Set it to the networks of your nodes.",
    networks
  ),
  nodeClientCert: setting(
    "MUSTER_NODE_CLIENT_CERT",
    "",
    "Certificate (PEM) that the service presents to daemons. Set it, on all replicas, if the nodes have `MUSTER_NODE_CLIENT_CA`.",
    file
  ),
  nodeClientKey: setting(
    "MUSTER_NODE_CLIENT_KEY",
    "",
    "Private key (PEM) of `MUSTER_NODE_CLIENT_CERT`.",
    file
  ),
  tlsCert: setting(
    "MUSTER_TLS_CERT",
    "",
    "Certificate (PEM) of the service. With it, the service speaks HTTPS only. Set it if the service listens beyond loopback without a TLS proxy.",
    file
  ),
  tlsKey: setting("MUSTER_TLS_KEY", "", "Private key (PEM) of `MUSTER_TLS_CERT`.", file),
  requireTls: setting(
    "MUSTER_REQUIRE_TLS",
    "false",
    "Whether the service refuses plain HTTP beyond loopback: to listen, to register nodes and to call nodes. Set `true` once all certificates are in place.",
    yesNo
  ),
  eventsKeepHours: setting(
    "MUSTER_EVENTS_KEEP_HOURS",
    "24",
    "Hours for which events can be replayed. Raise it if clients are offline for longer.",
    number(0.01, 8760)
  ),
  eventsKeepCount: setting(
    "MUSTER_EVENTS_KEEP_COUNT",
    "1000000",
    "Number of events that can be replayed. Lower it to bound the size of the database.",
    whole(1, 1_000_000_000)
  ),
  bodyLimit: setting(
    "MUSTER_BODY_LIMIT",
    "1048576",
    "Largest request body, in bytes. A larger one is 413.",
    whole(1024, 1_073_741_824)
  ),
  crashesKeep: setting(
    "MUSTER_CRASHES_KEEP",
    "20",
    "Crashes of each blueprint that are kept, with their last 200 console lines, beside the newest 5 of each server that exists. Raise it if crashes of a large fleet are examined later.",
    whole(1, 10_000)
  ),
  auditKeep: setting(
    "MUSTER_AUDIT_KEEP",
    "90",
    "Days for which entries of the audit log are kept. Raise it if your rules ask for more; an entry takes about 1 KB of the database.",
    whole(1, 36_500)
  ),
  auditKeepMib: setting(
    "MUSTER_AUDIT_KEEP_MIB",
    "1024",
    "Largest audit log, in MiB of the database. Beyond it the oldest entries are deleted, however old they are. Raise it if `muster_audit_bytes` reaches it before the days of `MUSTER_AUDIT_KEEP`.",
    whole(1, 1_048_576)
  ),
  rateLimit: setting(
    "MUSTER_RATE_LIMIT",
    "0",
    "Requests per minute and key, counted by each replica. 0: no limit. Set it if a client can overload the service.",
    whole(0, 1_000_000_000)
  ),
  streamsPerKey: setting(
    "MUSTER_STREAMS_PER_KEY",
    "100",
    "Event streams and consoles that one key may have open, at each replica. Raise it for a panel that opens a stream for each of its users.",
    whole(1, 1_000_000)
  ),
  streams: setting(
    "MUSTER_STREAMS",
    "10000",
    "Event streams and consoles that may be open, at each replica; at most half of the files that the process may open. Raise it together with `ulimit -n`.",
    whole(1, 1_000_000)
  ),
  corsOrigins: setting(
    "MUSTER_CORS_ORIGINS",
    "",
    "Origins of browser pages that may call the API. Unset: none. Set it for a panel in the browser.",
    origins
  ),
  trustedProxies: setting(
    "MUSTER_TRUSTED_PROXIES",
    "",
    "Networks of proxies whose `X-Forwarded-For` the service trusts, such as `10.0.0.0/8`. Unset: none. Set it behind a proxy; otherwise all clients have the address of the proxy.",
    networks
  ),
  webhooks: setting(
    "MUSTER_WEBHOOKS",
    "",
    "YAML file that defines webhooks. Unset: only those of the API. Set it, with the same file for all replicas, to keep webhooks with the rest of the configuration.",
    file
  ),
  webhookAllowPrivate: setting(
    "MUSTER_WEBHOOK_ALLOW_PRIVATE",
    "false",
    "Whether webhooks may be sent to loopback, link-local and private addresses. Set `true` if a receiver is in your own network and all holders of admin keys may reach it.",
    yesNo
  ),
  publicPages: setting(
    "MUSTER_PUBLIC_PAGES",
    "all",
    "Content of the pages `/` and `/nodes`, which need no key. `all`: uptime, nodes, servers by status and warnings, and every field of a node. `banner`: the banner alone, and name, location and state of nodes. Set `banner` if strangers reach the service.",
    oneOf("banner", "all")
  ),
  shutdownGrace: setting(
    "MUSTER_SHUTDOWN_GRACE",
    "0",
    "Seconds between the first 503 of `readyz` and the end of the service. Set it, behind a load balancer, to twice the time that the balancer takes to notice.",
    number(0, 3600)
  ),
  otlpEndpoint: setting(
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "",
    "Address of an OpenTelemetry collector, such as `http://127.0.0.1:4318`, which gets traces and metrics (OTLP over HTTP, JSON). Unset: nothing is recorded.",
    optionalAddress
  ),
  otlpHeaders: secret(
    "OTEL_EXPORTER_OTLP_HEADERS",
    "",
    "Headers of the requests to the collector, such as a key: `name=value`, comma-separated.",
    text
  ),
  tracesSampler: setting(
    "OTEL_TRACES_SAMPLER",
    "",
    "Which requests have a trace. Unset: 50 a second. Set a standard sampler to choose otherwise: with `parentbased_`, the `traceparent` of the caller decides, if there is one.",
    oneOf(
      "",
      "always_on",
      "always_off",
      "traceidratio",
      "parentbased_always_on",
      "parentbased_always_off",
      "parentbased_traceidratio"
    )
  ),
  tracesRatio: setting(
    "OTEL_TRACES_SAMPLER_ARG",
    "1",
    "The part of all traces that `traceidratio` records. Set it with that sampler.",
    number(0, 1)
  ),
  logFormat: setting(
    "MUSTER_LOG_FORMAT",
    "pretty",
    "Format of log lines. Set `json` for a log collector.",
    oneOf("pretty", "json")
  ),
  logLevel: setting(
    "MUSTER_LOG_LEVEL",
    "info",
    "Lowest level that is logged.",
    oneOf("debug", "info", "warn", "error")
  )
} as const

export type ServiceSettings = {
  readonly [K in Exclude<keyof typeof settings, "adminKey" | "otlpHeaders">]: SettingValue<
    (typeof settings)[K]
  >
} & {
  readonly adminKey: Option.Option<Redacted.Redacted<string>>
  readonly otlpHeaders: Redacted.Redacted<string>
}

/** The settings of this process with their origins, and without secrets. */
export const settingViews = viewAll(settings)

export class ServiceConfig extends Context.Service<ServiceConfig, ServiceSettings>()(
  "muster/config/ServiceConfig"
) {
  static readonly load: Effect.Effect<ServiceSettings, InvalidSetting | StartError> = Effect.gen(
    function* () {
      const values = yield* readAll(settings)
      const { adminKey: key, otlpHeaders } = values
      return {
        ...values,
        adminKey: key === "" ? Option.none() : Option.some(Redacted.make(key)),
        otlpHeaders: Redacted.make(otlpHeaders)
      }
    }
  )

  static readonly layer = Layer.effect(ServiceConfig, ServiceConfig.load)
}
