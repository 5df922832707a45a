/** Every setting of the service: name, default, meaning and accepted texts. Read once at the start. */
import { Context, Effect, Layer, Option, Redacted } from "effect"
import {
  allocations,
  databaseUrl,
  file,
  list,
  networks,
  number,
  oneOf,
  origins,
  path,
  text,
  uids,
  whole,
  yesNo,
  yesNoAuto
} from "./kinds.ts"
import { type InvalidSetting, readAll, type SettingValue, secret, setting } from "./Setting.ts"
import type { StartError } from "./StartError.ts"

/** All settings in their documented order. */
export const settings = {
  host: setting("MUSTER_HOST", "127.0.0.1", "Address that the service listens on.", text),
  port: setting("MUSTER_PORT", "5620", "Port of the service; 0: any free port, printed.", whole(0, 65535)),
  adminKey: secret(
    "APP_ADMIN_API_KEY",
    "",
    "An admin key set from outside; any non-empty value works.",
    text
  ),
  dataDir: setting(
    "MUSTER_DATA_DIR",
    "./data",
    "Folder of the database, the key file and the embedded node.",
    path
  ),
  secretFile: setting(
    "MUSTER_SECRET_FILE",
    "",
    "File of at least 32 random bytes that the tokens of nodes are encrypted with, the same for all replicas; unset: `secret.key` in the data folder, made at the first start.",
    file
  ),
  blueprintsDir: setting("MUSTER_BLUEPRINTS_DIR", "./blueprints", "Folder of blueprints and mixins.", path),
  softwareDir: setting("MUSTER_SOFTWARE_DIR", "./software", "Folder of software definitions.", path),
  blueprintSources: setting(
    "MUSTER_BLUEPRINT_SOURCES",
    "",
    "YAML file that lists git repositories to sync into these two folders.",
    file
  ),
  sourcesCacheMib: setting(
    "MUSTER_SOURCES_CACHE_MIB",
    "1024",
    "Size that the cache of one git repository may have, in MiB; a sync that exceeds it fails, and its cache is removed.",
    whole(1, 1_048_576)
  ),
  databaseUrl: secret(
    "MUSTER_DATABASE_URL",
    "",
    "The database; unset: SQLite in the data folder.",
    databaseUrl
  ),
  databasePool: setting(
    "MUSTER_DATABASE_POOL",
    "10",
    "Connections to PostgreSQL; one more waits for news of other replicas.",
    whole(1, 1000)
  ),
  databaseTimeout: setting(
    "MUSTER_DATABASE_TIMEOUT",
    "650",
    "Milliseconds without an answer after which PostgreSQL counts as away, and requests that need it fail.",
    whole(100, 60_000)
  ),
  embeddedNode: setting(
    "MUSTER_EMBEDDED_NODE",
    "auto",
    "Whether this process is a node, too. With auto: unless the database is PostgreSQL, which any number of services share; with a node in it a service has to be the only one.",
    yesNoAuto
  ),
  embeddedAllocations: setting(
    "MUSTER_EMBEDDED_ALLOCATIONS",
    "127.0.0.1:25565-25664",
    "Addresses and ports of the embedded node.",
    allocations
  ),
  embeddedOnShutdown: setting(
    "MUSTER_EMBEDDED_ON_SHUTDOWN",
    "stop",
    "What becomes of the embedded node's servers when the service ends: stopped gracefully, or kept running and picked up by the next start.",
    oneOf("stop", "keep")
  ),
  embeddedRuntime: setting(
    "MUSTER_EMBEDDED_RUNTIME",
    "auto",
    "What servers of the embedded node run in: plain processes; or containers where the software may and has an image and the engine answers, else processes. With auto, that there is no engine is no warning.",
    oneOf("auto", "process", "docker")
  ),
  dockerSocket: setting("MUSTER_DOCKER_SOCKET", "/var/run/docker.sock", "Socket of the Docker Engine.", path),
  dockerPull: setting(
    "MUSTER_DOCKER_PULL",
    "if-not-present",
    "When images are pulled.",
    oneOf("always", "if-not-present", "never")
  ),
  dockerConfig: setting(
    "MUSTER_DOCKER_CONFIG",
    "",
    "Configuration of Docker's command line with the users of image registries, as `docker login` makes it; unset: ~/.docker/config.json.",
    file
  ),
  forceOutgoingIp: setting(
    "MUSTER_FORCE_OUTGOING_IP",
    "false",
    "Whether what servers in containers send leaves from the address that they are allocated at (IPv4).",
    yesNo
  ),
  nodeName: setting("MUSTER_NODE_NAME", "local", "Display name of the embedded node.", text),
  nodeLocation: setting("MUSTER_NODE_LOCATION", "local", "Location label of the embedded node.", text),
  nodeUrl: setting(
    "MUSTER_NODE_URL",
    "",
    "Address shown for the embedded node; unset: that of the service.",
    text
  ),
  allowedMounts: setting("MUSTER_ALLOWED_MOUNTS", "", "Host folders that blueprints may mount from.", list),
  instanceFiles: setting(
    "MUSTER_INSTANCE_FILES",
    "auto",
    "How instances are made of a base folder: overlay mounts, copies that share blocks, plain copies. One that does not work gives way to the next; auto: the first that works.",
    oneOf("auto", "overlay", "reflink", "copy")
  ),
  diskCheck: setting(
    "MUSTER_DISK_CHECK",
    "30",
    "Seconds between two measurements of what servers with a disk limit have written; none where the file system has project quota.",
    whole(1, 86400)
  ),
  passEnv: setting(
    "MUSTER_PASS_ENV",
    "HTTP_PROXY,HTTPS_PROXY,NO_PROXY,http_proxy,https_proxy,no_proxy,NODE_EXTRA_CA_CERTS,SSL_CERT_FILE,SSL_CERT_DIR,npm_config_registry,NPM_CONFIG_REGISTRY",
    "Environment variables handed to install scripts and servers (NAME or PREFIX*); no other is.",
    list
  ),
  processIsolation: setting(
    "MUSTER_PROCESS_ISOLATION",
    "auto",
    "How plain processes are kept from the daemon and from each other. With auto: as well as the machine allows, and a warning where it does not. With required: without isolation the node offers no plain processes. With none: they run as the user of the daemon.",
    oneOf("auto", "required", "none")
  ),
  processUids: setting(
    "MUSTER_PROCESS_UIDS",
    "70000-79999",
    "Uids, which are gids too, that a daemon that runs as root gives to servers and software, one each. No other user of the machine may have them.",
    uids
  ),
  placement: setting(
    "MUSTER_PLACEMENT",
    "spread",
    "Strategy of the load balancer.",
    oneOf("spread", "binpack", "round-robin")
  ),
  overcommitMemory: setting(
    "MUSTER_OVERCOMMIT_MEMORY",
    "1",
    "Memory that may be placed on a node, as a multiple of what it has.",
    number(0.1, 1000)
  ),
  overcommitDisk: setting(
    "MUSTER_OVERCOMMIT_DISK",
    "1",
    "Disk that may be placed on a node, as a multiple of what it has.",
    number(0.1, 1000)
  ),
  nodeLostAfter: setting(
    "MUSTER_NODE_LOST_AFTER",
    "600",
    "Seconds without a sign of life after which a node's ephemeral servers are given up.",
    whole(1, 31_536_000)
  ),
  nodeHeartbeatTimeout: setting(
    "MUSTER_NODE_HEARTBEAT_TIMEOUT",
    "30",
    "Seconds without a sign of life after which a node is not connected; daemons send one every 10.",
    whole(1, 3600)
  ),
  nodeTokenHours: setting(
    "MUSTER_NODE_TOKEN_HOURS",
    "24",
    "Hours after which a node gets a new token; calls to the node go on meanwhile.",
    number(0.0001, 8760)
  ),
  nodeCa: setting(
    "MUSTER_NODE_CA",
    "",
    "Certificates (PEM) that those of daemons are checked against, in place of the system's.",
    file
  ),
  nodeNetworks: setting(
    "MUSTER_NODE_NETWORKS",
    "",
    "Networks that nodes on other machines may be in, such as 10.0.0.0/8: the service registers and calls no node elsewhere. Unset: anywhere but at link-local addresses and metadata services of clouds, which answer with the machine's credentials.",
    networks
  ),
  nodeClientCert: setting(
    "MUSTER_NODE_CLIENT_CERT",
    "",
    "Certificate (PEM) that the service presents to daemons, for those with MUSTER_NODE_CLIENT_CA.",
    file
  ),
  nodeClientKey: setting("MUSTER_NODE_CLIENT_KEY", "", "Private key (PEM) of that certificate.", file),
  tlsCert: setting("MUSTER_TLS_CERT", "", "Certificate (PEM) of the service; with it, HTTPS only.", file),
  tlsKey: setting("MUSTER_TLS_KEY", "", "Private key (PEM) of the certificate.", file),
  requireTls: setting(
    "MUSTER_REQUIRE_TLS",
    "false",
    "Whether plain HTTP beyond loopback is refused: to listen, to register nodes and to call nodes.",
    yesNo
  ),
  eventsKeepHours: setting(
    "MUSTER_EVENTS_KEEP_HOURS",
    "24",
    "Hours that events can be replayed.",
    number(0.01, 8760)
  ),
  eventsKeepCount: setting(
    "MUSTER_EVENTS_KEEP_COUNT",
    "1000000",
    "Number of events that can be replayed.",
    whole(1, 1_000_000_000)
  ),
  bodyLimit: setting(
    "MUSTER_BODY_LIMIT",
    "1048576",
    "Largest request body, in bytes.",
    whole(1024, 1_073_741_824)
  ),
  rateLimit: setting(
    "MUSTER_RATE_LIMIT",
    "0",
    "Requests a minute and key, counted by each replica; 0: no limit.",
    whole(0, 1_000_000_000)
  ),
  streamsPerKey: setting(
    "MUSTER_STREAMS_PER_KEY",
    "100",
    "Event streams and consoles that one key may have open, at each replica. Raise it for a panel that gives each of its users a stream.",
    whole(1, 1_000_000)
  ),
  streams: setting(
    "MUSTER_STREAMS",
    "10000",
    "Event streams and consoles that may be open, at each replica; at most half of the files that the process may open.",
    whole(1, 1_000_000)
  ),
  corsOrigins: setting("MUSTER_CORS_ORIGINS", "", "Origins of browser pages that may call the API.", origins),
  trustedProxies: setting(
    "MUSTER_TRUSTED_PROXIES",
    "",
    "Networks of proxies whose X-Forwarded-For is believed, such as 10.0.0.0/8.",
    networks
  ),
  publicPages: setting(
    "MUSTER_PUBLIC_PAGES",
    "all",
    "What the page `/nodes`, which needs no key, shows of a node: all; or with banner name, location and state, but no id and no address. Set banner where strangers reach the service.",
    oneOf("banner", "all")
  ),
  shutdownGrace: setting(
    "MUSTER_SHUTDOWN_GRACE",
    "0",
    "Seconds between the word that the service ends (`readyz` answers 503) and its end: behind a load balancer, twice the time that it takes to notice.",
    number(0, 3600)
  ),
  logFormat: setting("MUSTER_LOG_FORMAT", "pretty", "Form of log lines.", oneOf("pretty", "json")),
  logLevel: setting(
    "MUSTER_LOG_LEVEL",
    "info",
    "Least level that is logged.",
    oneOf("debug", "info", "warn", "error")
  )
} as const

/** The settings' values. */
export type ServiceSettings = {
  readonly [K in Exclude<keyof typeof settings, "adminKey">]: SettingValue<(typeof settings)[K]>
} & { readonly adminKey: Option.Option<Redacted.Redacted<string>> }

/** The settings of this process. */
export class ServiceConfig extends Context.Service<ServiceConfig, ServiceSettings>()(
  "muster/config/ServiceConfig"
) {
  static readonly load: Effect.Effect<ServiceSettings, InvalidSetting | StartError> = Effect.gen(
    function* () {
      const values = yield* readAll(settings)
      const key = values.adminKey
      return { ...values, adminKey: key === "" ? Option.none() : Option.some(Redacted.make(key)) }
    }
  )

  static readonly layer = Layer.effect(ServiceConfig, ServiceConfig.load)
}
