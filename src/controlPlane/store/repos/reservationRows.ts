/** The reservations of servers in the tables `holdings` and `commitments`, which has their sums. */

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

const sumsOf = (rows: ReadonlyArray<HoldingRow>) =>
  Array.from(
    Map.groupBy(rows, ({ node_id }) => node_id),
    ([node_id, own]) => ({
      node_id,
      servers: own.length,
      memory_bytes: own.reduce((sum, row) => sum + row.memory_bytes, 0),
      disk_bytes: own.reduce((sum, row) => sum + row.disk_bytes, 0)
    })
  )

/** The statements are pipelined; the first failure is the result. */
export const insertReservations = (
  sql: SqlClient.SqlClient,
  rows: ReadonlyArray<HoldingRow>
): Effect.Effect<void, SqlError.SqlError> =>
  Effect.all(
    [
      insertRows(sql, "holdings", rows),
      insertRows(
        sql,
        "commitments",
        sumsOf(rows),
        `ON CONFLICT (node_id) DO UPDATE SET servers = commitments.servers + excluded.servers,
          memory_bytes = commitments.memory_bytes + excluded.memory_bytes,
          disk_bytes = commitments.disk_bytes + excluded.disk_bytes`
      )
    ],
    { concurrency: "unbounded", discard: true }
  )

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
): Effect.Effect<void, SqlError.SqlError> => {
  const those =
    node_id === undefined
      ? sql`holdings.server_id = ${server_id}`
      : sql`holdings.server_id = ${server_id} AND holdings.node_id = ${node_id}`
  const sum = (column: "memory_bytes" | "disk_bytes") =>
    sql`(SELECT SUM(${sql(column)}) FROM holdings WHERE ${those} AND holdings.node_id = commitments.node_id)`
  return Effect.all(
    [
      sql`UPDATE commitments SET servers = servers - 1,
          memory_bytes = memory_bytes - ${sum("memory_bytes")}, disk_bytes = disk_bytes - ${sum("disk_bytes")}
        WHERE node_id IN (SELECT node_id FROM holdings WHERE ${those})`,
      sql`DELETE FROM holdings WHERE ${those}`
    ],
    { concurrency: "unbounded", discard: true }
  )
}
