import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * The scope and rights of `Operator` and `ReadOnly` keys. Their `scope` is `Metrics`, so that an earlier replica of a
 * rolling upgrade, which knows no other, gives them no more.
 */
export const keyGrants = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE api_keys ADD COLUMN access TEXT`
})
