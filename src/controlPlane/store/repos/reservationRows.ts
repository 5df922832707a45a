/** The reservations of servers: rows of the table `holdings`. */

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

export const holdingRow = (holder: Holder) => {
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

type HoldingRow = ReturnType<typeof holdingRow>

export const insertReservations = (sql: SqlClient.SqlClient, rows: ReadonlyArray<HoldingRow>) =>
  insertRows(sql, "holdings", rows)

export const replaceReservation = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  before: Holder,
  after: Holder
) {
  const row = holdingRow(after)
  if (isDeepStrictEqual(row, holdingRow(before))) return
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
      ? sql`DELETE FROM holdings WHERE server_id = ${server_id}`
      : sql`DELETE FROM holdings WHERE server_id = ${server_id} AND node_id = ${node_id}`
  )
