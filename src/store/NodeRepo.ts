import { Context, type Effect, Schema } from "effect"
import type { SqlError } from "effect/sql"
import { NodeAllocation } from "../domain/Allocation.ts"
import { Capacity, RuntimeKind } from "../domain/Node.ts"
import { HostInfo } from "../domain/SystemInfo.ts"
import type { Transaction } from "./Store.ts"

type Write<A> = Effect.Effect<A, SqlError.SqlError, Transaction>

/** What is kept of a node: its last registration and whether it is drained. */
export const NodeRecord = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  location: Schema.String,
  url: Schema.String,
  version: Schema.String,
  boot_id: Schema.String,
  token: Schema.String,
  allocations: Schema.Array(NodeAllocation),
  capacity: Capacity,
  runtimes: Schema.Array(RuntimeKind),
  system: HostInfo,
  drained: Schema.Boolean,
  /** RFC 3339 UTC; null: never heard of since it said good-bye. */
  last_seen_at: Schema.NullOr(Schema.String),
  /** Said good-bye: listed only while it owns servers. */
  departed: Schema.Boolean
})
export type NodeRecord = typeof NodeRecord.Type

/** Records of nodes. */
export class NodeRepo extends Context.Service<
  NodeRepo,
  {
    /** Inserts or replaces. */
    save(record: NodeRecord): Write<void>
    setDrained(id: string, drained: boolean): Write<void>
    setDeparted(id: string, departed: boolean): Write<void>
    remove(id: string): Write<void>
    readonly all: Effect.Effect<ReadonlyArray<NodeRecord>, SqlError.SqlError>
  }
>()("muster/store/NodeRepo") {}
