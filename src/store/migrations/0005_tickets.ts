import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/** Unused tickets: hash, holder and expiry, in milliseconds. */
export const tickets = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { big, id } = columnTypes(sql)
  yield* sql`CREATE TABLE tickets (
    hash ${id} PRIMARY KEY NOT NULL,
    key_id TEXT NOT NULL,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    expires_at ${big} NOT NULL
  )`
  yield* sql`CREATE INDEX tickets_by_age ON tickets (expires_at)`
})
