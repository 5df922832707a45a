import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { Drain, Migration, Origin } from "../../../contract/domain/Drain.ts"
import { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { BooleanColumn, byIds, JsonColumn, readRows, tableOf } from "../sql/rows.ts"
import { type Write, type Writing, write } from "../sql/Transaction.ts"
import { deleteReservations, insertReservations, reservationRow } from "./CapacityRepo.ts"
import { encodeServer, type InsertOutcome, inSavepoint, insertPorts, portsOf } from "./serverRows.ts"

/** A deletion that a node must do: a deleted server, or the files of a server on another node. */
export const PendingDeletion = Schema.Struct({ server_id: ServerId, node_id: NodeId })
export type PendingDeletion = typeof PendingDeletion.Type

const migrations = tableOf(
  "migrations",
  Schema.Struct({
    ...Migration.fields,
    was_up: Schema.NullOr(BooleanColumn),
    origin: Schema.NullOr(JsonColumn(Origin)),
    notified_at: Schema.NullOr(Schema.String)
  }),
  "server_id"
)
const drains = tableOf("drains", Schema.Struct({ ...Drain.fields, notified: BooleanColumn }), "node_id")
const readMigrations = (query: Parameters<typeof migrations.read>[0]) =>
  Effect.map(migrations.read(query), (rows) =>
    rows.map(({ notified_at, ...row }): Migration => (notified_at === null ? row : { ...row, notified_at }))
  )
const readDeletions = readRows(PendingDeletion)
const readStandings = readRows(
  Schema.Struct({
    id: ServerId,
    node_id: Schema.NullOr(NodeId),
    kept: BooleanColumn,
    owed: BooleanColumn
  })
)

export interface Standing {
  /** The node of its record, or null if there is no record. */
  readonly node_id: NodeId | null
  /** The node may have files of it: its record is there, or it migrates from there. */
  readonly kept: boolean
  /** The node must delete its files. */
  readonly owed: boolean
}

/** Migrations of servers, drains of nodes, and the deletions that nodes have to do. */
export class MigrationRepo extends Context.Service<MigrationRepo>()("muster/store/MigrationRepo", {
  make: Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const select = sql`SELECT * FROM migrations`

    const { put, remove } = migrations.on(sql)
    const { put: beginDrain, remove: endDrain } = drains.on(sql)

    const putBack = Effect.fn("MigrationRepo.putBack")(function* (to: ServerRecord): Writing {
      const { allocations, last_sequence, node_id } = yield* encodeServer(to)
      const values = { node_id, allocations, last_sequence }
      yield* sql`UPDATE servers SET ${sql.update(values)} WHERE id = ${to.id}`
    })

    const place = Effect.fn("MigrationRepo.place")(
      (to: ServerRecord): Write<InsertOutcome> =>
        inSavepoint(
          sql,
          insertPorts(sql, portsOf(to)).pipe(
            Effect.andThen(insertReservations(sql, [reservationRow(to)])),
            Effect.andThen(putBack(to))
          )
        )
    )

    const standings = Effect.fn("MigrationRepo.standings")(function* (
      node_id: NodeId,
      ids: ReadonlyArray<ServerId>
    ) {
      // One statement: between two the server could change its node.
      const found = yield* byIds(ids, (some) =>
        readStandings(sql`SELECT id, node_id, CASE WHEN node_id = ${node_id} OR EXISTS (SELECT 1 FROM migrations
            WHERE migrations.server_id = servers.id AND migrations.from_node = ${node_id}) THEN 1 ELSE 0 END AS kept, 0 AS owed
          FROM servers WHERE ${sql.in("id", some)}
          UNION ALL SELECT server_id AS id, NULL AS node_id, 0 AS kept, 1 AS owed
          FROM pending_deletions WHERE node_id = ${node_id} AND ${sql.in("server_id", some)}`)
      )
      const all = new Map<ServerId, Standing>()
      for (const { id, ...row } of found) {
        const other = all.get(id) ?? { node_id: null, kept: false, owed: false }
        all.set(id, {
          node_id: row.node_id ?? other.node_id,
          kept: row.kept || other.kept,
          owed: row.owed || other.owed
        })
      }
      return all
    })

    return {
      save: (migration: Migration) => put({ ...migration, notified_at: migration.notified_at ?? null }),
      remove,
      find: (server_id: ServerId) =>
        Effect.map(readMigrations(sql`${select} WHERE server_id = ${server_id}`), ([migration]) => migration),
      findAll: (ids: ReadonlyArray<ServerId>) =>
        Effect.map(
          byIds(ids, (some) => readMigrations(sql`${select} WHERE ${sql.in("server_id", some)}`)),
          (found) => new Map(found.map((migration) => [migration.server_id, migration]))
        ),
      all: readMigrations(sql`${select} ORDER BY server_id`),
      /** Places a server on another node; its reservations on the first remain. A reserved port changes nothing. */
      place,
      /** Places a server on a node on which its reservations remain. */
      putBack,
      /** Releases the reservations of a server on a node that its record is not on. */
      free: (server_id: ServerId, node_id: NodeId) =>
        write(
          Effect.andThen(
            sql`DELETE FROM ports WHERE server_id = ${server_id} AND node_id = ${node_id}`,
            deleteReservations(sql, server_id, node_id)
          )
        ),
      /** Begins the drain of a node, or begins it again. */
      beginDrain,
      endDrain,
      setNotified: (node_id: NodeId) => write(sql`UPDATE drains SET notified = 1 WHERE node_id = ${node_id}`),
      drains: drains.read(sql`SELECT * FROM drains ORDER BY node_id`),
      addDeletion: (deletion: PendingDeletion) =>
        write(sql`INSERT INTO pending_deletions ${sql.insert(deletion)} ON CONFLICT DO NOTHING`),
      removeDeletion: ({ node_id, server_id }: PendingDeletion) =>
        write(sql`DELETE FROM pending_deletions WHERE server_id = ${server_id} AND node_id = ${node_id}`),
      deletions: readDeletions(
        sql`SELECT server_id, node_id FROM pending_deletions ORDER BY server_id, node_id`
      ),
      deletionsOf: (server_id: ServerId) =>
        Effect.map(
          readDeletions(sql`SELECT server_id, node_id FROM pending_deletions WHERE server_id = ${server_id}`),
          (rows) => rows.map((row) => row.node_id)
        ),
      deletionsOn: (node_id: NodeId) =>
        readDeletions(sql`SELECT server_id, node_id FROM pending_deletions WHERE node_id = ${node_id}`),
      /** Standings by server id; a server without records is missing. */
      standings
    }
  })
}) {
  static readonly layer = Layer.effect(MigrationRepo, MigrationRepo.make)
}
