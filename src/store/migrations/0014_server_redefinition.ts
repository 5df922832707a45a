import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** The last change of a server's definition, as JSON. Null: the definition is that of the creation. */
export const serverRedefinition = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE servers ADD COLUMN redefinition TEXT`
})
