/** Every setting of `muster node`, read once at the start. An empty variable counts as unset. */
import { Effect, Redacted } from "effect"
import { address, allocations, file, oneOf, optionalAddress, path, text, whole, yesNo } from "./kinds.ts"
import { type InvalidSetting, readAll, type SettingValue, secret, setting } from "./Setting.ts"
import { StartError } from "./StartError.ts"
import { settings } from "./service.ts"

const nodeId = {
  may: "unset or 1-64 characters from A-Z a-z 0-9 . _ -",
  read: (value: string) =>
    value === "" || /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}$/.test(value) ? value : undefined
}

/** All settings of a node, in their documented order. */
export const nodeSettings = {
  controlUrl: setting("MUSTER_CONTROL_URL", "http://127.0.0.1:5620", "Where the control plane is.", address),
  controlCa: setting(
    "MUSTER_CONTROL_CA",
    "",
    "Certificates (PEM) that the control plane's is checked against, in place of the system's.",
    file
  ),
  key: secret(
    "MUSTER_NODE_KEY",
    "",
    "API key of this node: `muster keys create --name <name> --scope Node` makes one. Required.",
    text
  ),
  id: setting(
    "MUSTER_NODE_ID",
    "",
    "Id of the node; unset: made at the first start and kept in the data folder.",
    nodeId
  ),
  name: setting("MUSTER_NODE_NAME", "", "Display name; unset: the host's name.", text),
  location: setting("MUSTER_NODE_LOCATION", "local", "Location label.", text),
  host: setting("MUSTER_NODE_HOST", "127.0.0.1", "Address that the daemon listens on.", text),
  port: setting(
    "MUSTER_NODE_PORT",
    "5585",
    "Port of the daemon; 0: any free port, printed.",
    whole(0, 65535)
  ),
  url: setting(
    "MUSTER_NODE_URL",
    "",
    "Where the control plane reaches the daemon; unset: the address that it listens on.",
    optionalAddress
  ),
  tlsCert: setting("MUSTER_NODE_TLS_CERT", "", "Certificate (PEM) of the daemon; with it, HTTPS only.", file),
  tlsKey: setting("MUSTER_NODE_TLS_KEY", "", "Private key (PEM) of the certificate.", file),
  clientCa: setting(
    "MUSTER_NODE_CLIENT_CA",
    "",
    "Authorities (PEM) of client certificates; with it, the daemon refuses connections without a certificate of one of them. Needs MUSTER_NODE_TLS_CERT.",
    file
  ),
  requireTls: setting(
    "MUSTER_REQUIRE_TLS",
    "false",
    "Whether plain HTTP beyond loopback is refused: to listen and to call the control plane.",
    yesNo
  ),
  allocations: setting(
    "MUSTER_NODE_ALLOCATIONS",
    "127.0.0.1:25565-25664",
    "Addresses and ports for servers.",
    allocations
  ),
  runtime: setting(
    "MUSTER_NODE_RUNTIME",
    "process",
    "What servers run in: plain processes; or containers where the software may and has an image and the engine answers, else processes. With auto, that there is no engine is no warning.",
    oneOf("auto", "process", "docker")
  ),
  dockerSocket: settings.dockerSocket,
  dockerPull: settings.dockerPull,
  dockerConfig: settings.dockerConfig,
  forceOutgoingIp: settings.forceOutgoingIp,
  onShutdown: setting(
    "MUSTER_NODE_ON_SHUTDOWN",
    "stop",
    "What becomes of the servers when the daemon ends: stopped gracefully, and the node says good-bye; or kept running and picked up by the next start.",
    oneOf("stop", "keep")
  ),
  heartbeat: setting(
    "MUSTER_NODE_HEARTBEAT",
    "10",
    "Seconds between two signs of life; less than the control plane's MUSTER_NODE_HEARTBEAT_TIMEOUT.",
    whole(1, 600)
  ),
  dataDir: setting(
    "MUSTER_DATA_DIR",
    "./data",
    "Folder of the node: its id, and the servers' files in `node`.",
    path
  ),
  allowedMounts: settings.allowedMounts,
  instanceFiles: settings.instanceFiles,
  diskCheck: settings.diskCheck,
  passEnv: settings.passEnv,
  processIsolation: settings.processIsolation,
  processUids: settings.processUids,
  logFormat: settings.logFormat,
  logLevel: settings.logLevel
} as const

/** The values of a node's settings. */
export type NodeSettings = {
  readonly [K in Exclude<keyof typeof nodeSettings, "key">]: SettingValue<(typeof nodeSettings)[K]>
} & { readonly key: Redacted.Redacted<string> }

/** Reads the settings of `muster node`. */
export const loadNodeSettings: Effect.Effect<NodeSettings, InvalidSetting | StartError> = Effect.gen(
  function* () {
    const { key, ...plain } = yield* readAll(nodeSettings)
    if (key === "") {
      return yield* new StartError({
        message:
          "MUSTER_NODE_KEY is not set: `muster keys create --name <name> --scope Node` beside the control plane makes a key"
      })
    }
    return { ...plain, key: Redacted.make(key.trim()) }
  }
)
