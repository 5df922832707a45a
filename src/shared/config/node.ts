/** Every setting of `muster node`, read once at the start. An empty variable counts as unset. */
import { Effect, Redacted } from "effect"
import { docker, hosting, logging, otlp } from "./common.ts"
import {
  allocations,
  controlAddress,
  file,
  oneOf,
  optionalAddress,
  path,
  secretText,
  text,
  whole,
  yesNo
} from "./kinds.ts"
import { readAll, secret, setting } from "./Setting.ts"
import { StartError } from "./StartError.ts"

/** A shorter key can be guessed. */
const SHORTEST_METRICS_KEY = 24

const metricsKey = {
  may: `unset or at least ${SHORTEST_METRICS_KEY} characters`,
  read: (value: string) => {
    const key = value.trim()
    return key === "" || key.length >= SHORTEST_METRICS_KEY ? Redacted.make(key) : undefined
  }
}

const nodeId = {
  may: "unset or 1-64 characters from A-Z a-z 0-9 . _ -",
  read: (value: string) =>
    value === "" || /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,64}$/.test(value) ? value : undefined
}

export const nodeSettings = {
  controlUrl: setting("MUSTER_CONTROL_URL", "http://127.0.0.1:5620", controlAddress).means(
    "Address of the control plane. On its host, set it to `unix:` and the path of `muster.sock` in its data folder: no other program can take that address."
  ),
  controlCa: setting("MUSTER_CONTROL_CA", "", file).means(
    "Authorities (PEM) that the daemon accepts for the certificate of the control plane. Unset: those of the system. Set it for a private authority."
  ),
  key: secret("MUSTER_NODE_KEY", "", secretText).means(
    "Key of this node, with scope `Node`. Required; `muster keys create --name <name> --scope Node` makes one."
  ),
  id: setting("MUSTER_NODE_ID", "", nodeId).means(
    "Id of the node. Unset: the first start makes one and stores it in the data folder."
  ),
  name: setting("MUSTER_NODE_NAME", "", text).means("Display name of the node. Unset: the name of the host."),
  location: setting("MUSTER_NODE_LOCATION", "local", text).means(
    "Location of the node, which `placement.locations` of a blueprint selects."
  ),
  host: setting("MUSTER_NODE_HOST", "127.0.0.1", text).means(
    "Address that the daemon listens on. Set it to an address of the host, or to `0.0.0.0`, if the control plane is on another machine."
  ),
  port: setting("MUSTER_NODE_PORT", "5585", whole(0, 65535)).means(
    "Port that the daemon listens on. Change it if the port is taken; 0 takes a free port, which the log names."
  ),
  metricsKey: secret("MUSTER_NODE_METRICS_KEY", "", metricsKey).means(
    "Key with which Prometheus reads `/metrics` of the daemon: `Authorization: Bearer <key>`. Unset: only the control plane can. Use a random text."
  ),
  url: setting("MUSTER_NODE_URL", "", optionalAddress).means(
    "Address at which the control plane calls the daemon. Unset: the address that the daemon listens on. Required if `MUSTER_NODE_HOST` is `0.0.0.0` or `::`."
  ),
  tlsCert: setting("MUSTER_NODE_TLS_CERT", "", file).means(
    "Certificate (PEM) of the daemon. With it, the daemon speaks HTTPS only. Set it if the control plane is on another machine."
  ),
  tlsKey: setting("MUSTER_NODE_TLS_KEY", "", file).means("Private key (PEM) of `MUSTER_NODE_TLS_CERT`."),
  clientCa: setting("MUSTER_NODE_CLIENT_CA", "", file).means(
    "Authorities (PEM) of client certificates. With it, the daemon refuses callers without a certificate of one of them. Needs `MUSTER_NODE_TLS_CERT`. Set it for mutual TLS, after `MUSTER_NODE_CLIENT_CERT` of the service."
  ),
  requireTls: setting("MUSTER_REQUIRE_TLS", "false", yesNo).means(
    "Whether the daemon refuses plain HTTP beyond loopback: to listen and to call the control plane. Set `true` once all certificates are in place."
  ),
  allocations: setting("MUSTER_NODE_ALLOCATIONS", "127.0.0.1:25565-25664", allocations).means(
    "Addresses and ports for servers on this node. Set it to an address that players reach; the alias is the host name that callers show to players."
  ),
  runtime: setting("MUSTER_NODE_RUNTIME", "process", oneOf("auto", "process", "docker")).means(
    "Runtimes of the node. `process`: plain processes only. `docker`: containers for software that has an image, processes for the rest. `auto`: as `docker`, without a warning if no engine responds."
  ),
  ...docker,
  onShutdown: setting("MUSTER_NODE_ON_SHUTDOWN", "stop", oneOf("stop", "keep")).means(
    "Action of the daemon on shutdown: `stop` its servers and deregister, or `keep` them for the next start. Set `keep` to restart or upgrade the daemon without an interruption for players."
  ),
  heartbeat: setting("MUSTER_NODE_HEARTBEAT", "10", whole(1, 600)).means(
    "Seconds between two heartbeats. Must be less than `MUSTER_NODE_HEARTBEAT_TIMEOUT` of the control plane."
  ),
  dataDir: setting("MUSTER_DATA_DIR", "./data", path).means(
    "Folder of the node: its id, and the files of servers in `node`. Set it to a folder of its own, such as `/var/lib/muster`."
  ),
  ...hosting,
  ...logging,
  ...otlp
} as const

export const loadNodeSettings = Effect.filterOrFail(
  readAll(nodeSettings),
  ({ key }) => Redacted.value(key) !== "",
  () =>
    new StartError({
      message:
        "MUSTER_NODE_KEY is not set: `muster keys create --name <name> --scope Node` beside the control plane makes a key"
    })
)

export type NodeSettings = Effect.Success<typeof loadNodeSettings>
