/** Every setting of `muster node`, read once at the start. An empty variable counts as unset. */
import { Effect, Redacted } from "effect"
import { allocations } from "./allocations.ts"
import { controlAddress, file, oneOf, optionalAddress, path, text, whole, yesNo } from "./kinds.ts"
import { type InvalidSetting, readAll, type SettingValue, secret, setting } from "./Setting.ts"
import { StartError } from "./StartError.ts"
import { settings } from "./service.ts"

/** A shorter key can be guessed. */
const SHORTEST_METRICS_KEY = 24

const metricsKey = {
  may: `unset or at least ${SHORTEST_METRICS_KEY} characters`,
  read: (value: string) => {
    const key = value.trim()
    return key === "" || key.length >= SHORTEST_METRICS_KEY ? key : undefined
  }
}

const nodeId = {
  may: "unset or 1-64 characters from A-Z a-z 0-9 . _ -",
  read: (value: string) =>
    value === "" || /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}$/.test(value) ? value : undefined
}

export const nodeSettings = {
  controlUrl: setting(
    "MUSTER_CONTROL_URL",
    "http://127.0.0.1:5620",
    "Address of the control plane. On its host, set it to `unix:` and the path of `muster.sock` in its data folder: no other program can take that address.",
    controlAddress
  ),
  controlCa: setting(
    "MUSTER_CONTROL_CA",
    "",
    "Authorities (PEM) that the daemon accepts for the certificate of the control plane. Unset: those of the system. Set it for a private authority.",
    file
  ),
  key: secret(
    "MUSTER_NODE_KEY",
    "",
    "Key of this node, with scope `Node`. Required; `muster keys create --name <name> --scope Node` makes one.",
    text
  ),
  id: setting(
    "MUSTER_NODE_ID",
    "",
    "Id of the node. Unset: the first start makes one and stores it in the data folder.",
    nodeId
  ),
  name: setting("MUSTER_NODE_NAME", "", "Display name of the node. Unset: the name of the host.", text),
  location: setting(
    "MUSTER_NODE_LOCATION",
    "local",
    "Location of the node, which `placement.locations` of a blueprint selects.",
    text
  ),
  host: setting(
    "MUSTER_NODE_HOST",
    "127.0.0.1",
    "Address that the daemon listens on. Set it to an address of the host, or to `0.0.0.0`, if the control plane is on another machine.",
    text
  ),
  port: setting(
    "MUSTER_NODE_PORT",
    "5585",
    "Port that the daemon listens on. Change it if the port is taken; 0 takes a free port, which the log names.",
    whole(0, 65535)
  ),
  metricsKey: secret(
    "MUSTER_NODE_METRICS_KEY",
    "",
    "Key with which Prometheus reads `/metrics` of the daemon: `Authorization: Bearer <key>`. Unset: only the control plane can. Use a random text.",
    metricsKey
  ),
  url: setting(
    "MUSTER_NODE_URL",
    "",
    "Address at which the control plane calls the daemon. Unset: the address that the daemon listens on. Required if `MUSTER_NODE_HOST` is `0.0.0.0` or `::`.",
    optionalAddress
  ),
  tlsCert: setting(
    "MUSTER_NODE_TLS_CERT",
    "",
    "Certificate (PEM) of the daemon. With it, the daemon speaks HTTPS only. Set it if the control plane is on another machine.",
    file
  ),
  tlsKey: setting("MUSTER_NODE_TLS_KEY", "", "Private key (PEM) of `MUSTER_NODE_TLS_CERT`.", file),
  clientCa: setting(
    "MUSTER_NODE_CLIENT_CA",
    "",
    "Authorities (PEM) of client certificates. With it, the daemon refuses callers without a certificate of one of them. Needs `MUSTER_NODE_TLS_CERT`. Set it for mutual TLS, after `MUSTER_NODE_CLIENT_CERT` of the service.",
    file
  ),
  requireTls: setting(
    "MUSTER_REQUIRE_TLS",
    "false",
    "Whether the daemon refuses plain HTTP beyond loopback: to listen and to call the control plane. Set `true` once all certificates are in place.",
    yesNo
  ),
  allocations: setting(
    "MUSTER_NODE_ALLOCATIONS",
    "127.0.0.1:25565-25664",
    "Addresses and ports for servers on this node. Set it to an address that players reach; the alias is the host name that callers show to players.",
    allocations
  ),
  runtime: setting(
    "MUSTER_NODE_RUNTIME",
    "process",
    "Runtimes of the node. `process`: plain processes only. `docker`: containers for software that has an image, processes for the rest. `auto`: as `docker`, without a warning if no engine responds.",
    oneOf("auto", "process", "docker")
  ),
  dockerSocket: settings.dockerSocket,
  dockerPull: settings.dockerPull,
  dockerConfig: settings.dockerConfig,
  forceOutgoingIp: settings.forceOutgoingIp,
  onShutdown: setting(
    "MUSTER_NODE_ON_SHUTDOWN",
    "stop",
    "Action of the daemon on shutdown: `stop` its servers and deregister, or `keep` them for the next start. Set `keep` to restart or upgrade the daemon without an interruption for players.",
    oneOf("stop", "keep")
  ),
  heartbeat: setting(
    "MUSTER_NODE_HEARTBEAT",
    "10",
    "Seconds between two heartbeats. Must be less than `MUSTER_NODE_HEARTBEAT_TIMEOUT` of the control plane.",
    whole(1, 600)
  ),
  dataDir: setting(
    "MUSTER_DATA_DIR",
    "./data",
    "Folder of the node: its id, and the files of servers in `node`. Set it to a folder of its own, such as `/var/lib/muster`.",
    path
  ),
  allowedMounts: settings.allowedMounts,
  instanceFiles: settings.instanceFiles,
  startParallel: settings.startParallel,
  diskCheck: settings.diskCheck,
  diskReserve: settings.diskReserve,
  passEnv: settings.passEnv,
  processIsolation: settings.processIsolation,
  processUids: settings.processUids,
  processTasks: settings.processTasks,
  logFormat: settings.logFormat,
  logLevel: settings.logLevel,
  otlpEndpoint: settings.otlpEndpoint,
  otlpHeaders: settings.otlpHeaders,
  tracesSampler: settings.tracesSampler,
  tracesRatio: settings.tracesRatio
} as const

type Secret = "key" | "metricsKey" | "otlpHeaders"

export type NodeSettings = {
  readonly [K in Exclude<keyof typeof nodeSettings, Secret>]: SettingValue<(typeof nodeSettings)[K]>
} & { readonly [K in Secret]: Redacted.Redacted<string> }

export const loadNodeSettings: Effect.Effect<NodeSettings, InvalidSetting | StartError> = Effect.gen(
  function* () {
    const { key, metricsKey, otlpHeaders, ...plain } = yield* readAll(nodeSettings)
    if (key === "") {
      return yield* new StartError({
        message:
          "MUSTER_NODE_KEY is not set: `muster keys create --name <name> --scope Node` beside the control plane makes a key"
      })
    }
    return {
      ...plain,
      key: Redacted.make(key.trim()),
      metricsKey: Redacted.make(metricsKey),
      otlpHeaders: Redacted.make(otlpHeaders)
    }
  }
)
