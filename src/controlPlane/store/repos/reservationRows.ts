/** The rows of reservations: one for each server and node. */

import { isDeepStrictEqual } from "node:util"
import { Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import {
  committedCpuMillipercent,
  committedMemoryBytes,
  diskLimitBytes
} from "../../../contract/domain/Limits.ts"
import { type ReservedFields, reservedLimits } from "../../../contract/domain/Server.ts"
import { insertRows } from "../sql/insertRows.ts"

/** The fields of a record that determine its reservation. */
export interface Holder extends ReservedFields {
  readonly id: ServerId
  readonly node_id: NodeId
  readonly blueprint_id: string
}

export const reservationRow = (holder: Holder) => {
  const limits = reservedLimits(holder)
  return {
    server_id: holder.id,
    node_id: holder.node_id,
    blueprint_id: holder.blueprint_id,
    memory_bytes: committedMemoryBytes(limits),
    disk_bytes: diskLimitBytes(limits),
    cpu_millipercent: committedCpuMillipercent(limits)
  }
}

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
