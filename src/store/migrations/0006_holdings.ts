import { Effect, Option, Schema, Stream } from "effect"
import { SqlClient } from "effect/sql"
import { NodeId, ServerId } from "../../domain/Id.ts"
import { Limits } from "../../domain/Limits.ts"
import { holdingRow, insertReservations } from "../repos/reservationRows.ts"
import { columnTypes } from "../sql/dialect.ts"
import { JsonColumn, readRows } from "../sql/rows.ts"

/** Rows per read. */
const PAGE = 500

const readOld = readRows(
  Schema.Struct({
    id: ServerId,
    node_id: NodeId,
    blueprint_id: Schema.String,
    definition: JsonColumn(Schema.Struct({ limits: Limits })),
    from_node: Schema.NullOr(NodeId),
    phase: Schema.NullOr(Schema.String)
  })
)

/**
 * The reservations of servers, one row per server and node, and their sums per node: placement is decided on the sums.
 * `suspects` are servers whose nodes must be asked whether they still have them.
 */
export const holdings = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { big, id } = columnTypes(sql)
  yield* sql`CREATE TABLE holdings (
    server_id ${id} NOT NULL REFERENCES servers (id),
    node_id ${id} NOT NULL,
    blueprint_id TEXT NOT NULL,
    memory_bytes ${big} NOT NULL,
    disk_bytes ${big} NOT NULL,
    PRIMARY KEY (server_id, node_id)
  )`
  yield* sql`CREATE INDEX holdings_by_node ON holdings (node_id, blueprint_id)`
  yield* sql`CREATE TABLE commitments (
    node_id ${id} PRIMARY KEY NOT NULL,
    servers INTEGER NOT NULL,
    memory_bytes ${big} NOT NULL,
    disk_bytes ${big} NOT NULL
  )`
  yield* sql`CREATE TABLE suspects (
    server_id ${id} PRIMARY KEY NOT NULL REFERENCES servers (id) ON DELETE CASCADE
  )`

  // A server that arrives also has a reservation on the node that it leaves.
  const page = (after: string) =>
    Effect.map(
      readOld(sql`SELECT servers.id, node_id, blueprint_id, definition, from_node, phase
        FROM servers LEFT JOIN moves ON moves.server_id = servers.id
        WHERE servers.id > ${after} ORDER BY servers.id LIMIT ${PAGE}`),
      (rows) => [rows, Option.map(Option.fromUndefinedOr(rows.at(-1)), (last) => last.id)] as const
    )
  yield* Stream.runForEach(Stream.paginate("", page), (server) => {
    const from = server.phase === "arriving" && server.from_node !== null ? [server.from_node] : []
    const holding = (node_id: NodeId) => {
      const { cpu_millipercent: _, ...row } = holdingRow({ ...server, node_id })
      return row
    }
    return insertReservations(sql, [server.node_id, ...from].map(holding))
  })
})
