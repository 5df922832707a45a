import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/**
 * `origin`: the request that has created a rollout and the revisions before and after, as JSON. `notified_at`: when a
 * server has got the line before its restart, in ms since the epoch. Null: an earlier replica has written the row.
 */
export const rolloutOrigin = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { big } = columnTypes(sql)
  yield* sql`ALTER TABLE rollouts ADD COLUMN origin TEXT`
  yield* sql`ALTER TABLE rollout_servers ADD COLUMN notified_at ${big}`
})
