import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Why calls to a node fail; empty: no call yet, null: calls work. */
export const nodeUnreachable = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE nodes ADD COLUMN unreachable TEXT`
})
