import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/** Records of crashes, which outlive their servers. */
export const crashes = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { big, id } = columnTypes(sql)
  yield* sql`CREATE TABLE crashes (
    id ${id} PRIMARY KEY NOT NULL,
    recorded_at ${big} NOT NULL,
    server_id ${id} NOT NULL,
    blueprint_id TEXT NOT NULL,
    node_id ${id} NOT NULL,
    summary TEXT NOT NULL,
    lines TEXT NOT NULL
  )`
  yield* sql`CREATE INDEX crashes_by_blueprint ON crashes (blueprint_id, recorded_at, id)`
  yield* sql`CREATE INDEX crashes_by_server ON crashes (server_id, recorded_at, id)`
  yield* sql`CREATE INDEX crashes_by_time ON crashes (recorded_at, id)`
})
