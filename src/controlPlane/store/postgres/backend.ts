import { Effect, Latch, Schema } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import {
  advisoryLocks,
  Backend,
  type CommitOutcome,
  type CommitToken,
  JOURNAL_CHANNEL
} from "../sql/Backend.ts"
import { readRows } from "../sql/rows.ts"
import { NOT_TRIED, sqlState } from "../sql/sqlErrors.ts"
import { connectionError } from "./session.ts"

const readTransaction = readRows(Schema.Struct({ transaction: Schema.String, server_started: Schema.String }))
const readStatus = readRows(
  Schema.Struct({ status: Schema.NullOr(Schema.String), server_started: Schema.String })
)

/** A transaction takes no further mutation after this time, because other replicas wait for its end. */
const TRANSACTION_MILLIS = 150

/** Reads the notification of a commit: its process, and the newest cursor of the journal. */
export const parseNotification = (payload: string) => {
  const [origin = "", newest = ""] = payload.split(" ")
  return { origin, newest: Number(newest) || 0 }
}

/** Whether the last attempts reached the database. If not, statements fail at once until a new connection is made. */
export class Availability {
  #away = false
  /** Whether the database was ever reached: before, the start fails with the reason. */
  #met = false
  readonly #isAway = Latch.makeUnsafe(false)
  readonly #isBack = Latch.makeUnsafe(true)

  get isAway(): boolean {
    return this.#away
  }

  readonly away: Effect.Effect<void> = Effect.suspend(() => this.#isAway.await)
  readonly back: Effect.Effect<void> = Effect.suspend(() => this.#isBack.await)

  readonly check: Effect.Effect<void, SqlError.SqlError> = Effect.suspend(() =>
    this.#away ? Effect.fail(connectionError("the database is away", NOT_TRIED)) : Effect.void
  )

  /** Records that the database did not answer. */
  readonly lost = (why: string): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (this.#away || !this.#met) return Effect.void
      this.#away = true
      this.#isBack.closeUnsafe()
      this.#isAway.openUnsafe()
      return Effect.logError(`the database is unavailable: ${why}`)
    })

  readonly found: Effect.Effect<void> = Effect.suspend(() => {
    this.#met = true
    if (!this.#away) return Effect.void
    this.#away = false
    this.#isAway.closeUnsafe()
    this.#isBack.openUnsafe()
    return Effect.logInfo("the database is available again")
  })
}

export const postgresBackend = (options: {
  readonly sql: SqlClient.SqlClient
  readonly availability: Availability
  readonly origin: string
}) => {
  const { availability, origin, sql } = options

  const acquireWriteLock = Effect.flatMap(
    // Unlike a row's lock, an advisory lock goes to the longest waiting process: none starves.
    readTransaction(sql`SELECT pg_advisory_xact_lock(${advisoryLocks.writing})::text AS turn,
      pg_current_xact_id()::text AS transaction, pg_postmaster_start_time()::text AS server_started`),
    ([row]): Effect.Effect<CommitToken> =>
      row === undefined ? Effect.die(new Error("pg_current_xact_id() has no answer")) : Effect.succeed(row)
  )

  // The notification is sent with the commit only.
  const notifyClause = sql`, pg_notify(${JOURNAL_CHANNEL}, ${`${origin} `} || value::text)::text AS notified`

  /** Undefined while the transaction is neither committed nor rolled back. */
  const outcome = (token: CommitToken) =>
    Effect.map(
      readStatus(sql`SELECT pg_xact_status(${token.transaction}::xid8) AS status,
        pg_postmaster_start_time()::text AS server_started`),
      ([row]): CommitOutcome | undefined => {
        if (row?.status === "in progress") return undefined
        if (row?.status !== "committed") return "lost"
        return row.server_started === token.server_started ? "committed" : "unknown"
      }
    ).pipe(
      // An unknown transaction id: the server was restored from before the transaction.
      Effect.catchIf(
        (error) => sqlState(error) === "22023",
        () => Effect.succeed<CommitOutcome>("lost")
      )
    )

  const readAgain = Effect.as(Effect.andThen(Effect.sleep("50 millis"), availability.back), true)

  const finalOutcome = (token: CommitToken): Effect.Effect<CommitOutcome> =>
    outcome(token).pipe(
      Effect.catch((error) =>
        Effect.as(Effect.logDebug(`a commit cannot be looked up yet: ${error.message}`), undefined)
      ),
      Effect.flatMap((known) =>
        known === undefined ? Effect.andThen(readAgain, finalOutcome(token)) : Effect.succeed(known)
      )
    )

  return Backend.of({
    isAway: () => availability.isAway,
    away: availability.away,
    readAgain,
    retries: true,
    acquireWriteLock,
    transactionMillis: TRANSACTION_MILLIS,
    notifyClause,
    outcomeOf: (token) => (token === undefined ? Effect.succeed("lost") : finalOutcome(token))
  })
}
