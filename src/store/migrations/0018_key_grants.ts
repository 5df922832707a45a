import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * What `Operator` and `ReadOnly` keys may do. Their `scope` is `Metrics`, so that an earlier replica of a rolling upgrade,
 * which knows no other, gives them no more.
 */
export const keyGrants = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE api_keys ADD COLUMN access TEXT`
})
