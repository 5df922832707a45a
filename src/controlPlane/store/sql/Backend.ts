import { Context, Effect } from "effect"
import type { SqlError, Statement } from "effect/sql"

/** Identifies a transaction whose COMMIT was not answered, to find out later whether it was committed. */
export interface CommitToken {
  readonly transaction: string
  /** The start of the database server. A server that was killed may give the number of a lost transaction again. */
  readonly server_started: string
}

/** `unknown`: a transaction with this number was committed, but it may be another one. */
export type CommitOutcome = "committed" | "lost" | "unknown"

/** The differences between the databases beyond their SQL: availability, and the needs of a commit. */
export class Backend extends Context.Service<
  Backend,
  {
    /** Whether the database is known to be unavailable: statements fail at once. */
    readonly isAway: () => boolean
    readonly away: Effect.Effect<void>
    /** Waits until a failed read that must not be skipped can be repeated; false if it never can. */
    readonly readAgain: Effect.Effect<boolean>
    /** Whether a transaction that was lost for a transient reason can be repeated. */
    readonly retries: boolean
    /** As the first statement, excludes other processes' writes, so that read rows hold until the commit. */
    readonly acquireWriteLock: Effect.Effect<CommitToken | undefined, SqlError.SqlError>
    /** Time after which a transaction takes no further mutation, in milliseconds: others wait for its locks. */
    readonly transactionMillis: number
    /** The end of the statement that moves the journal's counter: it notifies other replicas at the commit. */
    readonly notifyClause: Statement.Fragment | undefined
    /** Waits until a token's transaction has ended, and returns its outcome. */
    outcomeOf(token: CommitToken | undefined): Effect.Effect<CommitOutcome>
  }
>()("muster/store/Backend") {
  /** A database in this process: always available, and a failed COMMIT did not happen. */
  static readonly local = Backend.of({
    isAway: () => false,
    away: Effect.never,
    readAgain: Effect.succeed(false),
    retries: false,
    acquireWriteLock: Effect.succeed(undefined),
    transactionMillis: Number.POSITIVE_INFINITY,
    notifyClause: undefined,
    outcomeOf: () => Effect.succeed("lost")
  })
}
