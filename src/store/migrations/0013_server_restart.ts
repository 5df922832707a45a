import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** The pending restart of a crashed server, as JSON. Null: none, or an older replica has written the row. */
export const serverRestart = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE servers ADD COLUMN restart TEXT`
})
