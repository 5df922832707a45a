import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/**
 * Keys that are limited to some servers, and the columns by which their lists and quotas are exact. `limited_access` has
 * the scope, rights and limits of such a key; `scope` is then `Metrics` and `access` null, so that an earlier replica of
 * a rolling upgrade gives it no more. `created_by`: the id of the key. `labels`: those of the server of an event, as JSON,
 * and of the deleted server of a crash; null: none.
 */
export const keyRestrictions = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { id } = columnTypes(sql)
  yield* sql`ALTER TABLE api_keys ADD COLUMN limited_access TEXT`
  yield* sql`ALTER TABLE journal ADD COLUMN labels TEXT`
  yield* sql`ALTER TABLE crashes ADD COLUMN labels TEXT`
  yield* sql`ALTER TABLE rollouts ADD COLUMN created_by ${id}`
  yield* sql`ALTER TABLE servers ADD COLUMN created_by ${id}`
  yield* sql`CREATE INDEX servers_by_creator ON servers (created_by) WHERE created_by IS NOT NULL`
})
