import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/** The names of servers in audit entries and crash records, which outlive the servers; null: none, or an earlier version. */
export const serverNames = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { id } = columnTypes(sql)
  yield* sql`ALTER TABLE audit ADD COLUMN object_name ${id}`
  yield* sql`ALTER TABLE audit_objects ADD COLUMN object_name ${id}`
  yield* sql`ALTER TABLE crashes ADD COLUMN server_name ${id}`
  yield* sql`CREATE INDEX audit_by_name ON audit (object_name, id)`
  yield* sql`CREATE INDEX audit_objects_by_name ON audit_objects (object_name)`
})
