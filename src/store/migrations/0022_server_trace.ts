import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** The trace of the creation of a server (`traceparent`), which its installation continues; null: none. */
export const serverTrace = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE servers ADD COLUMN trace TEXT`
})
