/** Settings that the service and `muster node` have in common: those of a daemon, embedded or not, and of telemetry. */
import {
  file,
  folders,
  list,
  number,
  oneOf,
  optionalAddress,
  path,
  rate,
  secretText,
  uids,
  whole,
  yesNo
} from "./kinds.ts"
import { secret, setting } from "./Setting.ts"

export const docker = {
  dockerSocket: setting("MUSTER_DOCKER_SOCKET", "/var/run/docker.sock", path).means(
    "Unix socket of the Docker Engine. Set it for an engine whose socket is elsewhere."
  ),
  dockerPull: setting(
    "MUSTER_DOCKER_PULL",
    "if-not-present",
    oneOf("always", "if-not-present", "never")
  ).means(
    "When the node pulls images: `always`, `if-not-present` or `never`. Set `always` for tags that move, `never` for a node without a registry."
  ),
  dockerConfig: setting("MUSTER_DOCKER_CONFIG", "", file).means(
    "File with the logins of image registries, as `docker login` writes it. Unset: `~/.docker/config.json`."
  ),
  forceOutgoingIp: setting("MUSTER_FORCE_OUTGOING_IP", "false", yesNo).means(
    "Whether the traffic that a container sends leaves from the address of its allocation (IPv4). Set `true` if the host has several addresses and peers check the sender."
  )
} as const

/** The files and processes of the servers of a node. */
export const hosting = {
  allowedMounts: setting("MUSTER_ALLOWED_MOUNTS", "", list).means(
    "Host folders from which blueprints may mount. Unset: none. Set it if a blueprint has `mounts`."
  ),
  backupFolders: setting("MUSTER_NODE_BACKUP_FOLDERS", "", folders).means(
    "Folders of the host below which targets of backups of the type `node` may have their folder. Unset: none, and such a backup fails. Set it for a second disk or mounted network storage, to a folder that exists only while the disk is mounted."
  ),
  backupRate: setting("MUSTER_BACKUP_RATE", "0", rate).means(
    "Bytes a second that a node reads of the files of servers for a backup, with a unit such as `50MiB`. 0: no limit. Set it if backups slow the disk down for servers."
  ),
  instanceFiles: setting("MUSTER_INSTANCE_FILES", "auto", oneOf("auto", "overlay", "reflink", "copy")).means(
    "How the node makes the files of an instance from a base: overlay mounts, copies that share blocks (`reflink`), or plain copies. If one does not work, the node uses the next. `auto`: the first that works."
  ),
  startParallel: setting("MUSTER_START_PARALLEL", "2", whole(1, 1000)).means(
    "Servers that a node starts at a time after its return: those that were up when it ended, by `priority` and age. Raise it if the host can start more at once."
  ),
  diskCheck: setting("MUSTER_DISK_CHECK", "30", whole(1, 86400)).means(
    "Seconds between two measurements of the disk that servers with a limit use. Where the file system has project quota, only logs, temporary and unnamed files are measured. Raise it if measurements load the disk."
  ),
  diskReserve: setting("MUSTER_DISK_RESERVE", "1024", whole(0, 1_000_000_000)).means(
    "Free space of a node's disk, in MiB, below which the node stops the servers that have written most of late. At most a twentieth of the disk; 0: no reserve. Raise it if servers can fill the disk within seconds."
  ),
  passEnv: setting(
    "MUSTER_PASS_ENV",
    "HTTP_PROXY,HTTPS_PROXY,NO_PROXY,http_proxy,https_proxy,no_proxy,NODE_EXTRA_CA_CERTS,SSL_CERT_FILE,SSL_CERT_DIR,npm_config_registry,NPM_CONFIG_REGISTRY",
    list
  ).means(
    "Environment variables of the daemon that install scripts and servers get, as `NAME` or `PREFIX*`. They get no other. Extend it for proxies, mirrors and licences."
  ),
  processIsolation: setting("MUSTER_PROCESS_ISOLATION", "auto", oneOf("auto", "required", "none")).means(
    "How plain processes are isolated. `auto`: as far as the host allows, with a warning if it does not. `required`: without isolation the node offers no plain processes. `none`: they run as the user of the daemon. Set `required` if servers are not trusted."
  ),
  processUids: setting("MUSTER_PROCESS_UIDS", "70000-79999", uids).means(
    "Range of uids, and gids, that a daemon of root gives to servers and software, one each. Change it if another user of the host has a uid in this range."
  ),
  processTasks: setting("MUSTER_PROCESS_TASKS", "4096", whole(32, 1_000_000)).means(
    "Processes and threads that the uid of a server or software may have at once, if the daemon gives uids. Lower it for many servers on a small host; raise it if a program cannot make threads."
  )
} as const

export const logging = {
  logFormat: setting("MUSTER_LOG_FORMAT", "pretty", oneOf("pretty", "json")).means(
    "Format of log lines. Set `json` for a log collector."
  ),
  logLevel: setting("MUSTER_LOG_LEVEL", "info", oneOf("debug", "info", "warn", "error")).means(
    "Lowest level that is logged."
  )
} as const

export const otlp = {
  otlpEndpoint: setting("OTEL_EXPORTER_OTLP_ENDPOINT", "", optionalAddress).means(
    "Address of an OpenTelemetry collector, such as `http://127.0.0.1:4318`, which gets traces and metrics (OTLP over HTTP, JSON). Unset: nothing is recorded."
  ),
  otlpHeaders: secret("OTEL_EXPORTER_OTLP_HEADERS", "", secretText).means(
    "Headers of the requests to the collector, such as a key: `name=value`, comma-separated."
  ),
  tracesSampler: setting(
    "OTEL_TRACES_SAMPLER",
    "",
    oneOf(
      "",
      "always_on",
      "always_off",
      "traceidratio",
      "parentbased_always_on",
      "parentbased_always_off",
      "parentbased_traceidratio"
    )
  ).means(
    "Which requests have a trace. Unset: 50 a second. Set a standard sampler to choose otherwise: with `parentbased_`, the `traceparent` of the caller decides, if there is one."
  ),
  tracesRatio: setting("OTEL_TRACES_SAMPLER_ARG", "1", number(0, 1)).means(
    "The part of all traces that `traceidratio` records. Set it with that sampler."
  )
} as const
