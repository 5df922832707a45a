import { Schema } from "effect"
import { NodeId } from "./Id.ts"

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
