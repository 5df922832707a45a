import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/**
 * Whether a node is connected, lost or given up (`gone`), and whether it is embedded. `node_heartbeats` has what the
 * replicas have received: `beats` grows with each record of a replica; `heard_at` in milliseconds.
 */
export const nodePresence = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { big, id } = columnTypes(sql)
  yield* sql`ALTER TABLE nodes ADD COLUMN connected INTEGER NOT NULL DEFAULT 0`
  yield* sql`ALTER TABLE nodes ADD COLUMN gone TEXT`
  yield* sql`ALTER TABLE nodes ADD COLUMN embedded INTEGER NOT NULL DEFAULT 0`
  yield* sql`CREATE TABLE node_heartbeats (
    node_id ${id} PRIMARY KEY NOT NULL,
    boot_id TEXT NOT NULL,
    beats ${big} NOT NULL,
    heard_at ${big} NOT NULL,
    usage TEXT NOT NULL
  )`
})
