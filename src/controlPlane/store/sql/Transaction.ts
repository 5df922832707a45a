import { Context, Effect } from "effect"
import type { SqlClient, SqlError, Statement } from "effect/sql"
import type { Change, ChangedServer } from "../../../contract/domain/Journal.ts"

/** The write transaction of the current mutation. */
export class Transaction extends Context.Service<
  Transaction,
  {
    /** Adds a change to the journal, in the transaction of the change; `server` if the change is about one. */
    append(change: Change, server?: ChangedServer): Effect.Effect<void>
  }
>()("muster/store/Transaction") {}

export type Read<A> = Effect.Effect<A, SqlError.SqlError>
/** A part of a write transaction. */
export type Write<A = void> = Effect.Effect<A, SqlError.SqlError, Transaction>
export type Writing<A = void> = Effect.fn.Return<A, SqlError.SqlError, Transaction>

export const write = (statement: Read<unknown>): Write => Effect.asVoid(statement)

/** Returns the condition that all given ones hold; false ones are left out. */
export const allOf = (
  sql: SqlClient.SqlClient,
  conditions: ReadonlyArray<Statement.Fragment | false>
): Statement.Fragment => sql.and([sql`1 = 1`, ...conditions.filter((condition) => condition !== false)])

/** Whether a statement that returns the changed rows has changed one. */
export const changes = (statement: Read<ReadonlyArray<unknown>>): Write<boolean> =>
  Effect.map(statement, (rows) => rows.length > 0)

/** Adds a change to the journal, as part of a write; `server` has the facts if the change is about one. */
export const append = (change: Change, server?: ChangedServer): Write =>
  Transaction.use((transaction) => transaction.append(change, server))

/** Announces a change of a key or of its binding, as part of its write: in `KeyRepo.version` and in the journal. */
export const keysChanged = Effect.fnUntraced(function* (sql: SqlClient.SqlClient): Writing {
  yield* sql`UPDATE counters SET value = value + 1 WHERE name = 'keys'`
  yield* append({ topic: "key:changed" })
})
