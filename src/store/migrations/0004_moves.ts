import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/**
 * Migrations of servers: `moves` has the phase of each, `evacuations` the nodes that are drained with `move` and since
 * when, `leftovers` the copies of files that a node must delete, also of deleted servers.
 */
export const moves = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { id } = columnTypes(sql)
  yield* sql`CREATE TABLE moves (
    server_id ${id} PRIMARY KEY NOT NULL REFERENCES servers (id) ON DELETE CASCADE,
    from_node TEXT NOT NULL,
    phase TEXT NOT NULL,
    arrival TEXT NOT NULL,
    was_up INTEGER,
    reason TEXT,
    origin TEXT
  )`
  yield* sql`CREATE TABLE evacuations (node_id TEXT PRIMARY KEY NOT NULL, asked_at TEXT NOT NULL)`
  yield* sql`CREATE TABLE leftovers (
    server_id ${id} NOT NULL,
    node_id TEXT NOT NULL,
    PRIMARY KEY (server_id, node_id)
  )`
})
