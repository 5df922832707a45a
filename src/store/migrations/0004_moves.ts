import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/**
 * Servers that move from node to node: `moves` says how far each is, `evacuations` which nodes are to be emptied and
 * since when, `leftovers` which copies of a server's files a node is to delete, also of servers that are gone.
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
