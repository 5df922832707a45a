import { Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { Transaction } from "./Transaction.ts"

/** Announces a change of a key or of its binding, as part of its write: in `KeyRepo.version` and in the journal. */
export const keysChanged = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient
): Effect.fn.Return<void, SqlError.SqlError, Transaction> {
  yield* sql`UPDATE counters SET value = value + 1 WHERE name = 'keys'`
  yield* (yield* Transaction).append({ topic: "key:changed" })
})
