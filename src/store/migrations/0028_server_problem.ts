import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Why the last start of a server was refused, as JSON; null: it was not, or an older replica has written the row. */
export const serverProblem = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE server_records ADD COLUMN problem TEXT`
})
