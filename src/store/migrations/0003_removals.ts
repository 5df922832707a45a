import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/** Servers whose removal has begun, so that it is completed after a crash. */
export const removals = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { id } = columnTypes(sql)
  yield* sql`CREATE TABLE removals (
    server_id ${id} PRIMARY KEY NOT NULL REFERENCES servers (id) ON DELETE CASCADE
  )`
})
