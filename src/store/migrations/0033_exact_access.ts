import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * The scope, rights and limits of a key that an earlier version cannot read. Its `scope` is `Metrics`, its `access` and
 * `limited_access` null, so that an earlier replica of a rolling upgrade gives it no more.
 */
export const exactAccess = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE api_keys ADD COLUMN exact_access TEXT`
})
