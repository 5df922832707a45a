import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** The expiry of a server that its last `expiring` event announced. Null: none. */
export const expiryAnnounced = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE servers ADD COLUMN expiry_announced TEXT`
})
