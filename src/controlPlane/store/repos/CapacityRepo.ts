import { isDeepStrictEqual } from "node:util"
import { Context, Effect, Layer, Schema } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { committedOf } from "../../../contract/domain/Limits.ts"
import { Capacity, RuntimeKind } from "../../../contract/domain/Node.ts"
import { type ReservedFields, reservedLimits } from "../../../contract/domain/Server.ts"
import { inSpan } from "../../../shared/observability/trace.ts"
import { BooleanColumn, firstRow, hasRows, IntColumn, insertRows, JsonColumn } from "../sql/rows.ts"
import type { Write } from "../sql/Transaction.ts"

const Room = Schema.Struct({
  capacity: JsonColumn(Capacity),
  runtimes: JsonColumn(Schema.Array(RuntimeKind)),
  connected: BooleanColumn,
  drained: BooleanColumn,
  /** Reservations of the node's servers, in bytes. */
  memory_bytes: IntColumn,
  disk_bytes: IntColumn,
  /** Whether the node has a server of the blueprint. */
  has_blueprint: BooleanColumn
})

export type AvailableCapacity = typeof Room.Type

const readRoom = firstRow(Room)

/** Checks whether a server fits by rows, which do not change until the commit, with one read. */
export class CapacityRepo extends Context.Service<CapacityRepo>()("muster/store/CapacityRepo", {
  make: Effect.map(SqlClient.SqlClient, (sql) => ({
    of: (node_id: NodeId, blueprint_id: string): Write<AvailableCapacity | undefined> =>
      readRoom(sql`SELECT capacity, runtimes, drained,
          CASE WHEN unreachable IS NULL THEN connected ELSE 0 END AS connected,
          COALESCE(memory_bytes, 0) AS memory_bytes, COALESCE(disk_bytes, 0) AS disk_bytes,
          CASE WHEN EXISTS (SELECT 1 FROM reservations
            WHERE reservations.node_id = nodes.id AND reservations.blueprint_id = ${blueprint_id})
            THEN 1 ELSE 0 END AS has_blueprint
        FROM nodes CROSS JOIN (SELECT SUM(memory_bytes) AS memory_bytes, SUM(disk_bytes) AS disk_bytes
          FROM reservations WHERE node_id = ${node_id}) AS held WHERE nodes.id = ${node_id}`).pipe(
        inSpan("CapacityRepo.of")
      ),
    isConnected: (node_id: NodeId): Write<boolean> =>
      hasRows(sql`SELECT id FROM nodes WHERE id = ${node_id} AND connected = 1`)
  }))
}) {
  static readonly layer = Layer.effect(CapacityRepo, CapacityRepo.make)
}

/** The fields of a record that determine its reservation. */
export interface Holder extends ReservedFields {
  readonly id: ServerId
  readonly node_id: NodeId
  readonly blueprint_id: string
}

export const reservationRow = (holder: Holder) => ({
  server_id: holder.id,
  node_id: holder.node_id,
  blueprint_id: holder.blueprint_id,
  ...committedOf(reservedLimits(holder))
})

type ReservationRow = ReturnType<typeof reservationRow>

export const insertReservations = (sql: SqlClient.SqlClient, rows: ReadonlyArray<ReservationRow>) =>
  insertRows(sql, "reservations", rows)

export const replaceReservation = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  before: Holder,
  after: Holder
) {
  const row = reservationRow(after)
  if (isDeepStrictEqual(row, reservationRow(before))) return
  yield* deleteReservations(sql, after.id, after.node_id)
  yield* insertReservations(sql, [row])
})

/** Releases the reservations of a server: on one node, or on all. */
export const deleteReservations = (
  sql: SqlClient.SqlClient,
  server_id: ServerId,
  node_id?: NodeId
): Effect.Effect<void, SqlError.SqlError> =>
  Effect.asVoid(
    node_id === undefined
      ? sql`DELETE FROM reservations WHERE server_id = ${server_id}`
      : sql`DELETE FROM reservations WHERE server_id = ${server_id} AND node_id = ${node_id}`
  )
