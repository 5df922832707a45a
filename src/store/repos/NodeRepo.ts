import { Array as Arr, Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import { NodeAllocation } from "../../domain/Allocation.ts"
import { Capacity, NodeUsage, RuntimeKind } from "../../domain/Node.ts"
import { HostInfo } from "../../domain/SystemInfo.ts"
import { databaseMillis } from "../sql/dialect.ts"
import { BooleanColumn, IntColumn, JsonColumn, readRows, writeRow } from "../sql/rows.ts"
import { keysChanged } from "../write/keysChanged.ts"
import type { Transaction } from "../write/Transaction.ts"

type Write<A> = Effect.Effect<A, SqlError.SqlError, Transaction>
type Read<A> = Effect.Effect<A, SqlError.SqlError>

/** What is kept of a node: its last registration, whether it is there, and whether it is drained. */
export const NodeRecord = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  location: Schema.String,
  url: Schema.String,
  version: Schema.String,
  boot_id: Schema.String,
  /**
   * What its daemon is called with, encrypted: names one registration, and only the holders of the secret can read it.
   * Empty: the registration counts no more.
   */
  token: Schema.String,
  allocations: Schema.Array(NodeAllocation),
  capacity: Capacity,
  runtimes: Schema.Array(RuntimeKind),
  system: HostInfo,
  drained: Schema.Boolean,
  /** When it registered or said good-bye, RFC 3339 UTC; null: never heard of since. */
  last_seen_at: Schema.NullOr(Schema.String),
  /** Said good-bye: listed only while it owns servers. */
  departed: Schema.Boolean,
  connected: Schema.Boolean,
  /** How far it is given up since it was connected last. */
  gone: Schema.NullOr(Schema.Literals(["lost", "given-up"])),
  /** It is part of a service: reached in that process only. */
  embedded: Schema.Boolean,
  /** Why it cannot be called where it has registered that it is; empty: it was not called yet, null: it can be. */
  unreachable: Schema.NullOr(Schema.String)
})
export type NodeRecord = typeof NodeRecord.Type

/** What a replica has heard of a node since it handed that on last. */
export interface HeardNode {
  readonly node_id: string
  readonly boot_id: string
  /** Milliseconds since. */
  readonly age: number
  readonly usage: NodeUsage
}

/** What all replicas have heard of a node. */
export interface NodeHeartbeat {
  readonly node_id: string
  readonly boot_id: string
  /** Another number each time that a replica has handed on that it has heard the node. */
  readonly beats: number
  /** When that was by the clock of the database, milliseconds since the epoch. */
  readonly heard_at: number
  readonly usage: NodeUsage
}

/** Nodes of which one statement tells or asks. */
const ROWS = 500

/** Records of nodes. Of what changes a record the answer is whether it did: the record may be another by then. */
export class NodeRepo extends Context.Service<
  NodeRepo,
  {
    /**
     * Inserts, or replaces all but whether the node is drained. At the address that it had, a node stays as unreachable
     * as it was, and as reachable while it is connected.
     */
    save(record: NodeRecord): Write<void>
    setDrained(id: string, drained: boolean): Write<boolean>
    /** Good-bye of a boot; `at` RFC 3339 UTC. */
    disconnect(id: string, boot_id: string, at: string): Write<boolean>
    /** The registration that was answered with this token counts no more; `lost`: and it is not waited for. */
    revoke(id: string, token: string, lost?: boolean): Write<boolean>
    /** Whether the node of this registration can be called, as {@link NodeRecord.unreachable}. */
    setUnreachable(id: string, token: string, unreachable: string | null): Write<boolean>
    /** Silent since the registration with this token and these {@link NodeHeartbeat.beats}. */
    markLost(id: string, token: string, beats: number): Write<boolean>
    /** Lost, and not back. */
    markGivenUp(id: string, token: string): Write<boolean>
    /** No node is connected, or was ever lost: each has to register. Answers of which that was not so. */
    readonly resetConnections: Write<ReadonlyArray<string>>
    /**
     * Unless servers hold something of it; its keys belong to no node from then on. Answers how many servers there are,
     * undefined: there is no such node.
     */
    remove(id: string): Write<number | undefined>
    find(ids: ReadonlyArray<string>): Read<ReadonlyArray<NodeRecord>>
    /** By id. */
    readonly all: Read<ReadonlyArray<NodeRecord>>
    recordHeartbeats(heard: ReadonlyArray<HeardNode>): Write<void>
    readonly heartbeats: Read<ReadonlyArray<NodeHeartbeat>>
  }
>()("muster/store/NodeRepo") {
  static readonly layer = Layer.effect(
    NodeRepo,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const select = sql.literal(`SELECT ${Object.keys(NodeRecord.fields).join(", ")} FROM nodes`)
      const changed = (update: Effect.Effect<ReadonlyArray<unknown>, SqlError.SqlError>) =>
        Effect.map(update, (rows) => rows.length > 0)

      const save = Effect.fn("NodeRepo.save")(function* (record: NodeRecord) {
        const row = yield* encode(record)
        const { id, drained, unreachable, ...replaced } = row
        yield* sql`INSERT INTO nodes ${sql.insert(row)} ON CONFLICT (id) DO UPDATE SET ${sql.update(replaced)},
          unreachable = CASE
            WHEN excluded.unreachable IS NULL THEN NULL
            WHEN nodes.url = excluded.url AND (nodes.connected = 1 OR nodes.unreachable IS NOT NULL)
              THEN nodes.unreachable
            ELSE excluded.unreachable END`
      })

      const remove = Effect.fn("NodeRepo.remove")(function* (id: string) {
        const found = yield* sql`SELECT id FROM nodes WHERE id = ${id}`
        if (found.length === 0) return undefined
        const [held] = yield* readHeld(sql`SELECT servers FROM commitments WHERE node_id = ${id}`)
        if (held !== undefined && held.servers > 0) return held.servers
        yield* sql`DELETE FROM nodes WHERE id = ${id}`
        yield* sql`DELETE FROM node_heartbeats WHERE node_id = ${id}`
        const freed = yield* sql`UPDATE api_keys SET node_id = NULL WHERE node_id = ${id} RETURNING id`
        if (freed.length > 0) yield* keysChanged(sql)
        return 0
      })

      const recordHeartbeats = Effect.fnUntraced(function* (heard: ReadonlyArray<HeardNode>) {
        const now = yield* databaseMillis(sql)
        // In one order, so that two that hand on the same nodes do not wait for each other.
        const rows = heard
          .toSorted((one, other) => (one.node_id < other.node_id ? -1 : 1))
          .map(({ age, boot_id, node_id, usage }) => ({
            node_id,
            boot_id,
            beats: 1,
            heard_at: now - Math.round(age),
            usage: JSON.stringify(usage)
          }))
        for (const some of Arr.chunksOf(rows, ROWS)) {
          yield* sql`INSERT INTO node_heartbeats ${sql.insert(some)}
            ON CONFLICT (node_id) DO UPDATE SET boot_id = excluded.boot_id, beats = node_heartbeats.beats + 1,
              heard_at = excluded.heard_at, usage = excluded.usage`
        }
      })

      return NodeRepo.of({
        save,
        setDrained: (id, drained) =>
          changed(sql`UPDATE nodes SET drained = ${drained ? 1 : 0} WHERE id = ${id} RETURNING id`),
        disconnect: (id, boot_id, at) =>
          changed(sql`UPDATE nodes SET connected = 0, gone = NULL, departed = 1, last_seen_at = ${at}
            WHERE id = ${id} AND boot_id = ${boot_id} RETURNING id`),
        revoke: (id, token, lost = false) =>
          changed(sql`UPDATE nodes SET connected = 0, token = '', gone = ${lost ? "lost" : null}
            WHERE id = ${id} AND token = ${token} AND connected = 1 RETURNING id`),
        setUnreachable: (id, token, unreachable) =>
          changed(sql`UPDATE nodes SET unreachable = ${unreachable}
            WHERE id = ${id} AND token = ${token} AND connected = 1
              AND unreachable IS DISTINCT FROM ${unreachable} RETURNING id`),
        markLost: (id, token, beats) =>
          changed(sql`UPDATE nodes SET connected = 0, gone = 'lost'
            WHERE id = ${id} AND token = ${token} AND gone IS NULL
              AND NOT EXISTS (SELECT 1 FROM node_heartbeats WHERE node_id = ${id} AND beats <> ${beats})
            RETURNING id`),
        markGivenUp: (id, token) =>
          changed(sql`UPDATE nodes SET gone = 'given-up'
            WHERE id = ${id} AND token = ${token} AND gone = 'lost' RETURNING id`),
        resetConnections: Effect.map(
          readIds(sql`UPDATE nodes SET connected = 0, gone = NULL, token = ''
            WHERE connected = 1 OR gone IS NOT NULL RETURNING id`),
          (rows) => rows.map(({ id }) => id)
        ),
        remove,
        find: (ids) =>
          Effect.map(
            Effect.forEach(Arr.chunksOf(ids, ROWS), (some) =>
              readAll(sql`${select} WHERE ${sql.in("id", some)}`)
            ),
            (found) => found.flat()
          ),
        all: readAll(sql`${select} ORDER BY id`),
        recordHeartbeats,
        heartbeats: readHeartbeats(sql`SELECT node_id, boot_id, beats, heard_at, usage FROM node_heartbeats`)
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
  departed: BooleanColumn,
  connected: BooleanColumn,
  embedded: BooleanColumn
})
const encode = writeRow(NodeRow)
const readAll = readRows(NodeRow)
const readIds = readRows(Schema.Struct({ id: Schema.String }))
const readHeld = readRows(Schema.Struct({ servers: IntColumn }))
const readHeartbeats = readRows(
  Schema.Struct({
    node_id: Schema.String,
    boot_id: Schema.String,
    beats: IntColumn,
    heard_at: IntColumn,
    usage: JsonColumn(NodeUsage)
  })
)
