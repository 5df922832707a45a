import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Why a node that is heard cannot be called; empty: it was not called yet, null: it can be. */
export const nodeUnreachable = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE nodes ADD COLUMN unreachable TEXT`
})
