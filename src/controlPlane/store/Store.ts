import { Context, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import type { Unavailable } from "../../contract/domain/errors.ts"
import { DatabaseDisk } from "./disk/DatabaseDisk.ts"
import { Journal } from "./journal/Journal.ts"
import { Backend } from "./sql/Backend.ts"
import { absorbSqlErrors } from "./sql/sqlErrors.ts"
import type { Transaction } from "./sql/Transaction.ts"
import { makeGroupCommit } from "./write/groupCommit.ts"

export { append, Transaction } from "./sql/Transaction.ts"

/** Runs all writes. Mutations share a transaction (group commit); a failed one undoes only its savepoint. */
export class Store extends Context.Service<
  Store,
  {
    /**
     * Runs `mutation` in a write transaction, one after another. Succeeds once it is durable and every follower of
     * the journal has applied it. Interruption has an effect only while the mutation waits; a follower or mutation
     * must not call `write`.
     * @error Unavailable the database cannot be reached; nothing was changed, unless the hint says that the outcome
     * is unknown
     */
    write<A, E>(
      mutation: Effect.Effect<A, E, Transaction>
    ): Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable>
    /**
     * Returns a write for many callers, whose requests in a transaction are one mutation with results in their order.
     * If it fails for several, it is undone and each runs alone.
     */
    together<Request, A, E>(
      mutation: (requests: ReadonlyArray<Request>) => Effect.Effect<ReadonlyArray<A>, E, Transaction>
    ): (request: Request) => Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable>
    read<A, E>(query: Effect.Effect<A, E>): Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable>
    /** Fails if the database does not answer; for readiness. */
    readonly ping: Effect.Effect<void, Unavailable>
  }
>()("muster/store/Store") {
  /** When the scope closes, accepted writes are completed, and later writes are `Unavailable`. */
  static readonly layer = Layer.effect(
    Store,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const backend = yield* Backend
      const disk = yield* DatabaseDisk
      const journal = yield* Journal
      const together = yield* makeGroupCommit({ sql, backend, disk, journal })
      const write = <A, E>(mutation: Effect.Effect<A, E, Transaction>) =>
        together(() => Effect.map(mutation, (answer) => [answer]))(undefined)
      const ping = absorbSqlErrors(Effect.asVoid(sql`SELECT value FROM counters WHERE name = 'journal'`))
      return Store.of({ write, together, read: absorbSqlErrors, ping })
    })
  )
}
