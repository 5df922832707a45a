import { Schema } from "effect"
import { NodeId } from "./Id.ts"
import { MigrationProgress } from "./Migration.ts"
import { TimeText } from "./nowText.ts"
import { NotEnforced } from "./SystemInfo.ts"

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
  /** Heartbeats arrive and calls to the daemon work. */
  connected: Schema.Boolean,
  /** The reason why calls to the daemon fail; only while heartbeats arrive. */
  unreachable: Schema.optionalKey(Schema.String),
  /** The reason why no key of the node is valid; absent: a key is valid. */
  key: Schema.optionalKey(Schema.Literals(["revoked", "expired"])),
  last_seen_at: Schema.NullOr(TimeText),
  version: Schema.String,
  capacity: Capacity,
  committed: Capacity,
  /** From the last heartbeat; null before the first. */
  usage: Schema.NullOr(NodeUsage),
  ports_free: Schema.Int,
  servers: Schema.Int,
  /** The limits that the node does not enforce on plain processes; absent: it enforces all, or runs none. */
  not_enforced: NotEnforced,
  /** The control plane calls the daemon over plain HTTP beyond loopback; absent: it does not. */
  unencrypted: Schema.optionalKey(Schema.Literal(true)),
  /** Only while the node is drained with `move`. */
  move: Schema.optionalKey(MigrationProgress)
}).annotate({ identifier: "NodeDetail" })
export type NodeDetail = typeof NodeDetail.Type

/** Returns the state of a node in a few words, for people. */
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

/** The runtimes for software: a container engine, or plain processes. */
export const RuntimeKind = Schema.Literals(["docker", "process"])
export type RuntimeKind = typeof RuntimeKind.Type
