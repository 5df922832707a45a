import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { NodeAllocation } from "../../../contract/domain/Allocation.ts"
import { NodeId } from "../../../contract/domain/Id.ts"
import { Capacity, HostInfo, NodeUsage, RuntimeKind } from "../../../contract/domain/Node.ts"
import { databaseMillis } from "../sql/Backend.ts"
import { BooleanColumn, byIds, IntColumn, insertRows, JsonColumn, readRows, writeRow } from "../sql/rows.ts"
import { changes, keysChanged, type Writing } from "../sql/Transaction.ts"

/** The record of a node: its last registration, its connection and its drain. */
export const NodeRecord = Schema.Struct({
  id: NodeId,
  name: Schema.String,
  location: Schema.String,
  url: Schema.String,
  version: Schema.String,
  boot_id: Schema.String,
  /** The daemon's token, encrypted; it identifies one registration and is empty once that is revoked. */
  token: Schema.String,
  allocations: Schema.Array(NodeAllocation),
  capacity: Capacity,
  runtimes: Schema.Array(RuntimeKind),
  system: HostInfo,
  drained: Schema.Boolean,
  /** Time of the last registration or deregistration, RFC 3339 UTC. */
  last_seen_at: Schema.NullOr(Schema.String),
  /** Deregistered: listed only while it has servers. */
  departed: Schema.Boolean,
  connected: Schema.Boolean,
  /** The progress of its loss since its last connection. */
  gone: Schema.NullOr(Schema.Literals(["lost", "given-up"])),
  /** Part of a service: only that process reaches it. */
  embedded: Schema.Boolean,
  /** Why calls fail; empty before the first call, null while calls work. */
  unreachable: Schema.NullOr(Schema.String)
})
export type NodeRecord = typeof NodeRecord.Type

/** The heartbeats of a node at this replica since the last record of them. */
export interface ReceivedHeartbeat {
  readonly node_id: NodeId
  readonly boot_id: string
  readonly age: number
  readonly usage: NodeUsage
}

const NodeRow = Schema.Struct({
  ...NodeRecord.fields,
  allocations: JsonColumn(NodeRecord.fields.allocations),
  capacity: JsonColumn(NodeRecord.fields.capacity),
  runtimes: JsonColumn(NodeRecord.fields.runtimes),
  system: JsonColumn(NodeRecord.fields.system),
  drained: BooleanColumn,
  departed: BooleanColumn,
  connected: BooleanColumn,
  embedded: BooleanColumn
})
const encode = writeRow(NodeRow)
const readAll = readRows(NodeRow)
const readIds = readRows(Schema.Struct({ id: NodeId }))
const readHeld = readRows(Schema.Struct({ servers: IntColumn }))

const NodeHeartbeat = Schema.Struct({
  node_id: NodeId,
  boot_id: Schema.String,
  /** Changes with each record of a replica. */
  beats: IntColumn,
  /** Time of the last heartbeat by the clock of the database, milliseconds since the epoch. */
  heard_at: IntColumn,
  usage: JsonColumn(NodeUsage)
})
export type NodeHeartbeat = typeof NodeHeartbeat.Type
const readHeartbeats = readRows(NodeHeartbeat)

/** Records of nodes. A change returns whether it changed the record, which another transaction may have replaced. */
export class NodeRepo extends Context.Service<NodeRepo>()("muster/store/NodeRepo", {
  make: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    /** Inserts or replaces all but the drain. At an unchanged address, a node keeps its reachability. */
    const save = Effect.fn("NodeRepo.save")(function* (record: NodeRecord): Writing {
      const row = yield* encode(record)
      const { id, drained, unreachable, ...replaced } = row
      yield* sql`INSERT INTO nodes ${sql.insert(row)} ON CONFLICT (id) DO UPDATE SET ${sql.update(replaced)},
        unreachable = CASE
          WHEN excluded.unreachable IS NULL THEN NULL
          WHEN nodes.url = excluded.url AND (nodes.connected = 1 OR nodes.unreachable IS NOT NULL)
            THEN nodes.unreachable
          ELSE excluded.unreachable END`
    })

    /** Removes a node without reservations, and unbinds its keys. Returns its number of servers, unless there is no node. */
    const remove = Effect.fn("NodeRepo.remove")(function* (id: NodeId): Writing<number | undefined> {
      const found = yield* sql`SELECT id FROM nodes WHERE id = ${id}`
      if (found.length === 0) return undefined
      const [held] = yield* readHeld(sql`SELECT COUNT(*) AS servers FROM reservations WHERE node_id = ${id}`)
      if (held !== undefined && held.servers > 0) return held.servers
      yield* sql`DELETE FROM nodes WHERE id = ${id}`
      yield* sql`DELETE FROM node_heartbeats WHERE node_id = ${id}`
      yield* sql`DELETE FROM kept_servers WHERE node_id = ${id}`
      const freed = yield* sql`UPDATE api_keys SET node_id = NULL WHERE node_id = ${id} RETURNING id`
      if (freed.length > 0) yield* keysChanged(sql)
      return 0
    })

    const recordHeartbeats = Effect.fnUntraced(function* (
      received: ReadonlyArray<ReceivedHeartbeat>
    ): Writing {
      const now = yield* databaseMillis(sql)
      // A fixed order: two transactions with the same nodes do not deadlock.
      const rows = received
        .toSorted((one, other) => (one.node_id < other.node_id ? -1 : 1))
        .map(({ age, boot_id, node_id, usage }) => ({
          node_id,
          boot_id,
          beats: 1,
          heard_at: now - Math.round(age),
          usage: JSON.stringify(usage)
        }))
      yield* insertRows(
        sql,
        "node_heartbeats",
        rows,
        `ON CONFLICT (node_id) DO UPDATE SET boot_id = excluded.boot_id, beats = node_heartbeats.beats + 1,
          heard_at = excluded.heard_at, usage = excluded.usage`
      )
    })

    return {
      save,
      setDrained: (id: NodeId, drained: boolean) =>
        changes(sql`UPDATE nodes SET drained = ${drained ? 1 : 0} WHERE id = ${id} RETURNING id`),
      /** Deregisters a boot; `at` RFC 3339 UTC. */
      disconnect: (id: NodeId, boot_id: string, at: string) =>
        changes(sql`UPDATE nodes SET connected = 0, gone = NULL, departed = 1, last_seen_at = ${at}
          WHERE id = ${id} AND boot_id = ${boot_id} RETURNING id`),
      /** Revokes the registration with this token; `lost`: without waiting for another one. */
      revoke: (id: NodeId, token: string, lost = false) =>
        changes(sql`UPDATE nodes SET connected = 0, token = '', gone = ${lost ? "lost" : null}
          WHERE id = ${id} AND token = ${token} AND connected = 1 RETURNING id`),
      /** Sets the reachability of this registration, as {@link NodeRecord.unreachable}. */
      setUnreachable: (id: NodeId, token: string, unreachable: string | null) =>
        changes(sql`UPDATE nodes SET unreachable = ${unreachable}
          WHERE id = ${id} AND token = ${token} AND connected = 1
            AND unreachable IS DISTINCT FROM ${unreachable} RETURNING id`),
      /** Marks a node as lost, without a heartbeat since the registration with this token and these {@link NodeHeartbeat.beats}. */
      markLost: (id: NodeId, token: string, beats: number) =>
        changes(sql`UPDATE nodes SET connected = 0, gone = 'lost'
          WHERE id = ${id} AND token = ${token} AND gone IS NULL
            AND NOT EXISTS (SELECT 1 FROM node_heartbeats WHERE node_id = ${id} AND beats <> ${beats})
          RETURNING id`),
      markGivenUp: (id: NodeId, token: string) =>
        changes(sql`UPDATE nodes SET gone = 'given-up'
          WHERE id = ${id} AND token = ${token} AND gone = 'lost' RETURNING id`),
      /** Resets all nodes to disconnected: each must register. Returns those that changed. */
      resetConnections: Effect.map(
        readIds(sql`UPDATE nodes SET connected = 0, gone = NULL
          WHERE connected = 1 OR gone IS NOT NULL RETURNING id`),
        (rows) => rows.map(({ id }) => id)
      ),
      remove,
      find: (ids: ReadonlyArray<NodeId>) =>
        byIds(ids, (some) => readAll(sql`SELECT * FROM nodes WHERE ${sql.in("id", some)}`)),
      all: readAll(sql`SELECT * FROM nodes ORDER BY id`),
      recordHeartbeats,
      heartbeats: readHeartbeats(sql`SELECT * FROM node_heartbeats`)
    }
  })
}) {
  static readonly layer = Layer.effect(NodeRepo, NodeRepo.make)
}
