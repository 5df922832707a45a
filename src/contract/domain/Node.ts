import { Schema } from "effect"
import { MigrationProgress } from "./Drain.ts"
import { NodeId } from "./Id.ts"
import { NodeCount, NodeText } from "./NodeText.ts"
import { TimeText } from "./nowText.ts"

/** How a node makes instances from a base: overlay mounts, copies that share blocks, or plain copies. */
export const InstanceStorage = Schema.Literals(["overlay", "reflink", "copy"])
export type InstanceStorage = typeof InstanceStorage.Type

/**
 * The isolation of a plain process: a uid for each server, namespaces that hide the daemon's data and other processes,
 * both, or neither.
 */
export const ProcessIsolation = Schema.Literals(["user+namespaces", "user", "namespaces", "none"])
export type ProcessIsolation = typeof ProcessIsolation.Type

/** The isolation of servers, per runtime of a node. */
export const Isolation = Schema.Struct({
  process: Schema.optionalKey(ProcessIsolation),
  docker: Schema.optionalKey(Schema.Literal("container"))
}).annotate({ identifier: "Isolation" })
export type Isolation = typeof Isolation.Type

export const NotEnforced = Schema.optionalKey(Schema.Array(NodeText).check(Schema.isMaxLength(16)))

/** Host information (spec 1.1, `system`). */
export const HostInfo = Schema.Struct({
  /** Go's name: `amd64`, `arm64`. */
  architecture: NodeText,
  cpu_threads: NodeCount,
  memory_bytes: NodeCount,
  kernel_version: NodeText,
  os: NodeText,
  os_type: NodeText,
  instance_files: Schema.optionalKey(InstanceStorage),
  isolation: Schema.optionalKey(Isolation),
  /** The limits that the node does not enforce on plain processes, if any. */
  not_enforced: NotEnforced,
  /** Set while every uid for servers is in use, so that the node runs no further plain processes. */
  lacks_uids: Schema.optionalKey(
    Schema.Literal(true).annotate({
      description: "Every uid of MUSTER_PROCESS_UIDS is in use: the node gets no further plain processes."
    })
  )
}).annotate({ identifier: "HostInfo" })
export type HostInfo = typeof HostInfo.Type

/** System information (spec 1.1): version of the service or daemon, and its host. */
export const SystemInfo = Schema.Struct({ version: NodeText, system: HostInfo }).annotate({
  identifier: "SystemInfo"
})
export type SystemInfo = typeof SystemInfo.Type

/** A node in a list (spec 2.1). */
export const Node = Schema.Struct({
  id: NodeId,
  name: Schema.String,
  location: Schema.String,
  url: Schema.String,
  drained: Schema.Boolean
}).annotate({ identifier: "Node" })
export type Node = typeof Node.Type

/** The resources of a node, or of the servers placed on it; bytes and threads. */
export const Capacity = Schema.Struct({
  memory_bytes: Schema.Int,
  cpu_threads: Schema.Finite,
  disk_bytes: Schema.Int
}).annotate({ identifier: "Capacity" })
export type Capacity = typeof Capacity.Type

/** The resources in use on a node's host, by all of its processes: load average of the last minute, and bytes. */
export const NodeUsage = Schema.Struct({
  load: Schema.Finite,
  memory_bytes: Schema.Int,
  disk_bytes: Schema.Int
}).annotate({ identifier: "NodeUsage" })
export type NodeUsage = typeof NodeUsage.Type

/** A node with its state and load (spec 2). */
export const NodeDetail = Schema.Struct({
  ...Node.fields,
  connected: Schema.Boolean,
  /** The reason why calls to the daemon fail; only while heartbeats arrive. */
  unreachable: Schema.optionalKey(Schema.String),
  key: Schema.optionalKey(Schema.Literals(["revoked", "expired"])),
  last_seen_at: Schema.NullOr(TimeText),
  version: Schema.String,
  capacity: Capacity,
  committed: Capacity,
  /** From the last heartbeat; null before the first. */
  usage: Schema.NullOr(NodeUsage),
  ports_free: Schema.Int,
  servers: Schema.Int,
  /** As in {@link HostInfo}. */
  not_enforced: NotEnforced,
  /** Set if the control plane calls the daemon over plain HTTP beyond loopback. */
  unencrypted: Schema.optionalKey(Schema.Literal(true)),
  /** Only while the node is drained with `move`. */
  move: Schema.optionalKey(MigrationProgress)
}).annotate({ identifier: "NodeDetail" })
export type NodeDetail = typeof NodeDetail.Type

export const nodeState = ({ connected, drained, key, unencrypted, unreachable }: NodeDetail): string => {
  const away = key !== undefined ? `key ${key}` : unreachable === undefined ? "away" : "unreachable"
  return [
    connected ? "connected" : away,
    ...(drained ? ["drained"] : []),
    ...(unencrypted ? ["plain HTTP"] : [])
  ].join(", ")
}

/** Returns the hint for a node whose heartbeats arrive and whose daemon cannot be called. */
export const notCallable = (why: string): string => `Its heartbeats arrive, but it cannot be called: ${why}`

export const RuntimeKind = Schema.Literals(["docker", "process"])
export type RuntimeKind = typeof RuntimeKind.Type

/** How a node fits a server that is to be created (spec 3.3). */
export const NodeFit = Schema.Struct({
  node_id: NodeId,
  node_name: Schema.String,
  fits: Schema.Boolean,
  /** All reasons against the node, joined by `; `; absent if it fits. */
  reason: Schema.optionalKey(Schema.String),
  memory_free_bytes: Schema.Finite,
  disk_free_bytes: Schema.Finite,
  /** The most free ports of one address: the ports of a server are on one address. */
  ports_free: Schema.Int,
  /** Committed memory over the memory of the node. */
  share: Schema.Finite
}).annotate({ identifier: "NodeFit" })
export type NodeFit = typeof NodeFit.Type

/** A setting as people see it. */
export const SettingView = Schema.Struct({
  /** The environment variable; of a secret from a file, the one that names the file. */
  name: Schema.String,
  /** Null for a secret that is set. */
  value: Schema.NullOr(Schema.String),
  source: Schema.Literals(["default", "environment", "file"])
}).annotate({ identifier: "Setting" })
export type SettingView = typeof SettingView.Type
