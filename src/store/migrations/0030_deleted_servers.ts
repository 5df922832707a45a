import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/** The ends of deleted servers, which a 404 of their ids explains. */
export const deletedServers = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { big, id } = columnTypes(sql)
  yield* sql`CREATE TABLE deleted_servers (
    id ${id} PRIMARY KEY NOT NULL,
    name ${id},
    blueprint_id TEXT NOT NULL,
    labels TEXT NOT NULL,
    deleted_at ${big} NOT NULL,
    reason TEXT NOT NULL
  )`
  yield* sql`CREATE INDEX deleted_servers_by_name ON deleted_servers (name, deleted_at)`
  yield* sql`CREATE INDEX deleted_servers_by_time ON deleted_servers (deleted_at)`
})
