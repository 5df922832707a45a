import { Cause, type Context, Deferred, Effect, Exit } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { Unavailable } from "../domain/errors.ts"
import { Change } from "../domain/Journal.ts"
import { leaveFailedMutation } from "./dialect.ts"
import type { PendingChange } from "./journalTable.ts"
import { writeRow } from "./rows.ts"
import { isDatabaseAway, isSqlError, sqlErrorIn } from "./sqlErrors.ts"
import { Transaction } from "./Transaction.ts"

/** One caller's write, from the queue to its answer. */
export interface Job {
  /** Runs the mutation in a savepoint; fails only when the whole transaction is lost. May be repeated then. */
  readonly attempt: Effect.Effect<void, SqlError.SqlError>
  /** What the mutation has appended; empty when it has failed. */
  readonly changes: () => ReadonlyArray<PendingChange>
  /** Gives the caller the outcome of the last attempt. */
  readonly settle: Effect.Effect<unknown>
  readonly reject: (error: Unavailable) => Effect.Effect<unknown>
  /** The caller was interrupted while the job waited. */
  cancelled: boolean
}

/** What the caller sees of a mutation's errors. */
export type Answered<E> = Exclude<E, SqlError.SqlError> | Unavailable

const encodeChange = writeRow(Change)

/** @param options.context the caller's: its log annotations and span go with the mutation */
export const makeJob = <A, E>(options: {
  readonly sql: SqlClient.SqlClient
  readonly mutation: Effect.Effect<A, E, Transaction>
  readonly context: Context.Context<never>
}) => {
  const { context, mutation, sql } = options
  const answer = Deferred.makeUnsafe<A, Answered<E>>()
  let outcome: Exit.Exit<A, Answered<E>> = Exit.fail(Unavailable.store())
  let changes: Array<PendingChange> = []
  const appender = Transaction.of({
    append: (change, blueprint_id) =>
      Effect.map(encodeChange(change), () => {
        changes.push({ change, blueprint_id })
      })
  })

  const attempt = Effect.suspend(() => {
    changes = []
    return sql.withTransaction(mutation)
  }).pipe(
    Effect.provideService(Transaction, appender),
    Effect.provideContext(context),
    Effect.exit,
    Effect.flatMap((exit) => {
      if (Exit.isSuccess(exit)) {
        outcome = Exit.succeed(exit.value)
        return Effect.void
      }
      changes = []
      const error = sqlErrorIn(exit.cause)
      if (error !== undefined && isDatabaseAway(error)) return Effect.fail(error)
      outcome = Exit.failCause(mistakesAsDefects(exit.cause))
      return error === undefined ? Effect.void : leaveFailedMutation(sql, error)
    })
  )

  const job: Job = {
    attempt,
    cancelled: false,
    changes: () => changes,
    settle: Effect.suspend(() => Deferred.done(answer, outcome)),
    reject: (error) => Deferred.fail(answer, error)
  }
  return { job, answer: Deferred.await(answer) }
}

/** A SqlError that is the statement's own fault is a defect of the mutation. */
const mistakesAsDefects = <E>(cause: Cause.Cause<E>): Cause.Cause<Exclude<E, SqlError.SqlError>> =>
  Cause.fromReasons(
    cause.reasons.map((reason) =>
      Cause.isFailReason(reason) && isSqlError(reason.error)
        ? Cause.makeDieReason(reason.error)
        : // What is left is no SqlError; TypeScript does not narrow a type parameter.
          (reason as Cause.Reason<Exclude<E, SqlError.SqlError>>)
    )
  )
