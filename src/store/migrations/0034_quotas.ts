import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { columnTypes } from "../sql/dialect.ts"

/**
 * Quotas that keys share. `limits` is JSON; the servers that count are those whose `created_by` is a key with this
 * `quota`. `cpu_millipercent`: 0 for servers from before, whose keys have no such quota.
 */
export const quotas = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const { big, id } = columnTypes(sql)
  yield* sql`CREATE TABLE quotas (
    name ${id} PRIMARY KEY NOT NULL,
    limits TEXT NOT NULL,
    created_at TEXT NOT NULL
  )`
  yield* sql`ALTER TABLE api_keys ADD COLUMN quota ${id}`
  yield* sql`CREATE INDEX api_keys_by_quota ON api_keys (quota) WHERE quota IS NOT NULL`
  yield* sql`ALTER TABLE holdings ADD COLUMN cpu_millipercent ${big} NOT NULL DEFAULT 0`
})
