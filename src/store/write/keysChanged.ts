import { Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { Transaction } from "./Transaction.ts"

/** Part of every change of an API key, and of what belongs to it: `KeyRepo.version` and the journal tell of it. */
export const keysChanged = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient
): Effect.fn.Return<void, SqlError.SqlError, Transaction> {
  yield* sql`UPDATE counters SET value = value + 1 WHERE name = 'keys'`
  yield* (yield* Transaction).append({ topic: "key:changed" })
})
