import { Context, Effect, Layer } from "effect"
import { SqlClient, type SqlError } from "effect/sql"
import type { Unavailable } from "../domain/errors.ts"
import { DatabaseDisk } from "./disk/DatabaseDisk.ts"
import { JournalFollowers } from "./journal/JournalFollowers.ts"
import { Backend } from "./sql/Backend.ts"
import { absorbSqlErrors } from "./sql/sqlErrors.ts"
import { makeGroupCommit } from "./write/groupCommit.ts"
import type { Transaction } from "./write/Transaction.ts"

export { Transaction } from "./write/Transaction.ts"

/**
 * All writes of the control plane. Mutations that wait when a transaction begins share its commit (group commit);
 * each has a savepoint of its own, so a mutation that fails undoes itself alone.
 */
export class Store extends Context.Service<
  Store,
  {
    /**
     * Runs `mutation` in a write transaction and succeeds once it is durable and every follower of the journal has
     * seen its changes (read your own writes). Mutations run one after another and do nothing but SQL. A mutation
     * whose caller is interrupted while it waits does not run; later the interruption changes nothing. A follower
     * or a mutation that calls `write` itself is a defect: it would wait for itself.
     *
     * @error Unavailable the database cannot be reached; nothing was changed, unless the hint says that this is not known
     */
    write<A, E>(
      mutation: Effect.Effect<A, E, Transaction>
    ): Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable>
    /**
     * Writes of one kind, each as with {@link write}: those that share a transaction are one mutation, which answers the
     * requests in their order. Where it fails for several, nothing of it is kept and each is carried out alone.
     */
    together<Request, A, E>(
      mutation: (requests: ReadonlyArray<Request>) => Effect.Effect<ReadonlyArray<A>, E, Transaction>
    ): (request: Request) => Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable>
    /** Runs a read outside a write transaction. */
    read<A, E>(query: Effect.Effect<A, E>): Effect.Effect<A, Exclude<E, SqlError.SqlError> | Unavailable>
    /** Fails when the database does not answer: readiness asks it. */
    readonly ping: Effect.Effect<void, Unavailable>
  }
>()("muster/store/Store") {
  /** When its scope closes, what has been accepted is still written; later writes are `Unavailable`. */
  static readonly layer = Layer.effect(
    Store,
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const backend = yield* Backend
      const disk = yield* DatabaseDisk
      const { publish, publishAnyway } = yield* JournalFollowers
      const together = yield* makeGroupCommit({ sql, backend, disk, publish, publishAnyway })
      const write = <A, E>(mutation: Effect.Effect<A, E, Transaction>) =>
        together(() => Effect.map(mutation, (answer) => [answer]))(undefined)
      const ping = absorbSqlErrors(Effect.asVoid(sql`SELECT value FROM counters WHERE name = 'journal'`))
      return Store.of({ write, together, read: absorbSqlErrors, ping })
    })
  )
}
