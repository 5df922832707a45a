import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * The choices of a drain, and whether the servers that its deadline stops have got its console line; null: none.
 * `moves.notified_at`: when a migrating server has got the line.
 */
export const drainOptions = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE evacuations ADD COLUMN parallel INTEGER`
  yield* sql`ALTER TABLE evacuations ADD COLUMN deadline_at TEXT`
  yield* sql`ALTER TABLE evacuations ADD COLUMN notify TEXT`
  yield* sql`ALTER TABLE evacuations ADD COLUMN notify_seconds INTEGER`
  yield* sql`ALTER TABLE evacuations ADD COLUMN notified INTEGER`
  yield* sql`ALTER TABLE moves ADD COLUMN notified_at TEXT`
})
