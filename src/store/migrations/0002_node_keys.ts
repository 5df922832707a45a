import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** The node of a key of scope `Node`; null until a node registers with the key. */
export const nodeKeys = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE api_keys ADD COLUMN node_id TEXT`
})
