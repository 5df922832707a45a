import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/** The stream of each used ticket: a hash of its request, its start, and how often the ticket has opened the stream. */
export const ticketStreams = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { big } = columnTypes(sql)
  yield* sql`ALTER TABLE tickets ADD COLUMN stream TEXT`
  yield* sql`ALTER TABLE tickets ADD COLUMN start_cursor ${big}`
  yield* sql`ALTER TABLE tickets ADD COLUMN times_opened ${big} NOT NULL DEFAULT 0`
  yield* sql`ALTER TABLE tickets ADD COLUMN is_open ${big} NOT NULL DEFAULT 0`
})
