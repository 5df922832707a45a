import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Who has stopped a server, and whether it waits for its start, as JSON. Null: neither. */
export const serverRun = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE server_records ADD COLUMN run TEXT`
})
