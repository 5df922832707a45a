import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Which node a key of scope `Node` belongs to; null until one has registered with it. */
export const nodeKeys = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE api_keys ADD COLUMN node_id TEXT`
})
