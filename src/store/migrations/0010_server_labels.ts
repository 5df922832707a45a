import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Name, labels, expiry and last change of servers. All may be null: an older replica does not write them. */
export const serverLabels = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  for (const column of ["name", "labels", "expires_at", "updated_at"]) {
    yield* sql`ALTER TABLE servers ADD COLUMN ${sql(column)} TEXT`
  }
})
