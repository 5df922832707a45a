import { Context, Effect } from "effect"
import type { SqlError, Statement } from "effect/sql"

/** What says later whether a transaction was committed, when the answer to its COMMIT was lost. */
export interface CommitToken {
  readonly transaction: string
}

/** What differs between the databases beyond their SQL: how they go away and come back, and what a commit needs. */
export class Backend extends Context.Service<
  Backend,
  {
    /** Whether the database is known to be away now: what needs it fails at once. */
    readonly isAway: () => boolean
    /** Waits until the database is away. */
    readonly away: Effect.Effect<void>
    /**
     * Waits until it is worth to repeat a read that has failed and must not be left out; false: it never is.
     */
    readonly readAgain: Effect.Effect<boolean>
    /** Whether a transaction that was lost for a passing reason is worth another try. */
    readonly retries: boolean
    /**
     * Waits until no other process has a write transaction open, and keeps it so until this one ends; its first statement.
     * What a mutation reads is thus what there is until its commit: nothing is decided on what another changes meanwhile.
     */
    readonly acquireWriteLock: Effect.Effect<CommitToken | undefined, SqlError.SqlError>
    /** Time after which a transaction takes no further mutation, in milliseconds: others wait for its locks. */
    readonly transactionMillis: number
    /** End of the statement that moves the journal's counter: other replicas are told of it, once it is committed. */
    readonly notifyClause: Statement.Fragment | undefined
    /** Waits until it is known whether the transaction of a token was committed. */
    wasCommitted(token: CommitToken | undefined): Effect.Effect<boolean>
  }
>()("muster/store/Backend") {
  /** A database in this process: never away for long, and a COMMIT that fails has not happened. */
  static readonly local = Backend.of({
    isAway: () => false,
    away: Effect.never,
    readAgain: Effect.succeed(false),
    retries: false,
    acquireWriteLock: Effect.succeed(undefined),
    transactionMillis: Number.POSITIVE_INFINITY,
    notifyClause: undefined,
    wasCommitted: () => Effect.succeed(false)
  })
}
