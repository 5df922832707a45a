import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Servers that are being removed from their nodes: what a crash in between has left to do. */
export const removals = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const id = sql.literal(sql.onDialectOrElse({ sqlite: () => "TEXT", orElse: () => 'TEXT COLLATE "C"' }))
  yield* sql`CREATE TABLE removals (
    server_id ${id} PRIMARY KEY NOT NULL REFERENCES servers (id) ON DELETE CASCADE
  )`
})
