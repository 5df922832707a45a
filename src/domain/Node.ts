import { Schema } from "effect"
import { MigrationProgress } from "./Migration.ts"

/** A node as lists show it (contract 2.1). */
export const Node = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  location: Schema.String,
  url: Schema.String,
  drained: Schema.Boolean
}).annotate({ identifier: "Node" })
export type Node = typeof Node.Type

/** What a node has, or what is placed on it; bytes and threads. */
export const Capacity = Schema.Struct({
  memory_bytes: Schema.Int,
  cpu_threads: Schema.Finite,
  disk_bytes: Schema.Int
}).annotate({ identifier: "Capacity" })
export type Capacity = typeof Capacity.Type

/** What is in use on a node's machine, by whomever: load average of the last minute, and bytes. */
export const NodeUsage = Schema.Struct({
  load: Schema.Finite,
  memory_bytes: Schema.Int,
  disk_bytes: Schema.Int
}).annotate({ identifier: "NodeUsage" })
export type NodeUsage = typeof NodeUsage.Type

/** A node with its state and load (decisions, section 2). */
export const NodeDetail = Schema.Struct({
  ...Node.fields,
  /** It is heard, and can be called. */
  connected: Schema.Boolean,
  /** Why it cannot be called; only while it is heard and cannot. */
  unreachable: Schema.optionalKey(Schema.String),
  /** Why no key of it is valid; only where that is so. */
  key: Schema.optionalKey(Schema.Literals(["revoked", "expired"])),
  last_seen_at: Schema.NullOr(Schema.String),
  version: Schema.String,
  capacity: Capacity,
  committed: Capacity,
  /** What its last heartbeat said; null until the first. */
  usage: Schema.NullOr(NodeUsage),
  ports_free: Schema.Int,
  servers: Schema.Int,
  /** The control plane calls it over plain HTTP beyond loopback; only where that is so. */
  unencrypted: Schema.optionalKey(Schema.Literal(true)),
  /** Only while the node is drained and its servers are to move. */
  move: Schema.optionalKey(MigrationProgress)
}).annotate({ identifier: "NodeDetail" })
export type NodeDetail = typeof NodeDetail.Type

/** The state of a node in a few words, for people. */
export const nodeState = ({ connected, drained, key, unencrypted, unreachable }: NodeDetail): string => {
  const away = key !== undefined ? `key ${key}` : unreachable === undefined ? "away" : "unreachable"
  return [
    connected ? "connected" : away,
    ...(drained ? ["drained"] : []),
    ...(unencrypted ? ["plain HTTP"] : [])
  ].join(", ")
}

/** What is said of a node that is heard, and why it cannot be called. */
export const notCallable = (why: string): string => `It is heard, but cannot be called: ${why}`

/** Where software can run: a container engine or plain processes. */
export const RuntimeKind = Schema.Literals(["docker", "process"])
export type RuntimeKind = typeof RuntimeKind.Type
