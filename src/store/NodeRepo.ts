import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { NodeAllocation } from "../domain/Allocation.ts"
import { Capacity, RuntimeKind } from "../domain/Node.ts"
import { HostInfo } from "../domain/SystemInfo.ts"
import { BooleanColumn, JsonColumn, readRows, writeRow } from "./rows.ts"
import type { Transaction } from "./Transaction.ts"

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
    /** Its keys belong to no node from then on. */
    remove(id: string): Write<void>
    readonly all: Effect.Effect<ReadonlyArray<NodeRecord>, SqlError.SqlError>
  }
>()("muster/store/NodeRepo") {
  static readonly layer = Layer.effect(
    NodeRepo,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient

      const save = Effect.fn("NodeRepo.save")(function* (record: NodeRecord) {
        yield* sql`INSERT INTO nodes ${sql.insert(yield* encode(record))}
          ON CONFLICT (id) DO UPDATE SET name = excluded.name, location = excluded.location, url = excluded.url,
            version = excluded.version, boot_id = excluded.boot_id, token = excluded.token,
            allocations = excluded.allocations, capacity = excluded.capacity, runtimes = excluded.runtimes,
            system = excluded.system, drained = excluded.drained, last_seen_at = excluded.last_seen_at,
            departed = excluded.departed`
      })
      const set = (id: string, values: { readonly drained: number } | { readonly departed: number }) =>
        Effect.asVoid(sql`UPDATE nodes SET ${sql.update(values)} WHERE id = ${id}`)

      return NodeRepo.of({
        save,
        setDrained: (id, drained) => set(id, { drained: drained ? 1 : 0 }),
        setDeparted: (id, departed) => set(id, { departed: departed ? 1 : 0 }),
        remove: Effect.fn("NodeRepo.remove")(function* (id: string) {
          yield* sql`DELETE FROM nodes WHERE id = ${id}`
          const freed = yield* sql`UPDATE api_keys SET node_id = NULL WHERE node_id = ${id} RETURNING id`
          if (freed.length > 0) yield* sql`UPDATE counters SET value = value + 1 WHERE name = 'keys'`
        }),
        all: readAll(sql`SELECT id, name, location, url, version, boot_id, token, allocations, capacity, runtimes,
          system, drained, last_seen_at, departed FROM nodes ORDER BY id`)
      })
    })
  )
}

const NodeRow = Schema.Struct({
  ...NodeRecord.fields,
  allocations: JsonColumn(NodeRecord.fields.allocations),
  capacity: JsonColumn(NodeRecord.fields.capacity),
  runtimes: JsonColumn(NodeRecord.fields.runtimes),
  system: JsonColumn(NodeRecord.fields.system),
  drained: BooleanColumn,
  departed: BooleanColumn
})
const encode = writeRow(NodeRow)
const readAll = readRows(NodeRow)
