import { Cause, type Context, Deferred, Effect, Exit, Fiber, Metric, Queue, type Scope } from "effect"
import { type SqlClient, SqlError } from "effect/sql"
import { Unavailable } from "../domain/errors.ts"
import type { JournalEntry } from "../domain/Journal.ts"
import { Change } from "../domain/Journal.ts"
import { journalTable, type PendingChange } from "./journalTable.ts"
import { storeCommits, storeMutations } from "./metrics.ts"
import { writeRow } from "./rows.ts"
import { isDatabaseAway } from "./sqlErrors.ts"
import { Transaction } from "./Transaction.ts"

/** Mutations that share one commit at most: bounds how long a transaction holds the database. */
const MAX_BATCH = 500

/** One caller's write, from the queue to its answer. */
interface Job {
  /** Runs the mutation in a savepoint; fails only when the whole transaction is lost. */
  readonly attempt: Effect.Effect<void, SqlError.SqlError>
  /** What the mutation has appended; empty when it has failed. */
  readonly changes: () => ReadonlyArray<PendingChange>
  /** Gives the caller the outcome of the attempt. */
  readonly settle: Effect.Effect<unknown>
  readonly reject: Effect.Effect<unknown>
  /** The caller was interrupted while the job waited. */
  cancelled: boolean
}

/** What the caller sees of a mutation's errors. */
type Answered<E> = Exclude<E, SqlError.SqlError> | Unavailable

type Write = <A, E>(mutation: Effect.Effect<A, E, Transaction>) => Effect.Effect<A, Answered<E>>

const encodeChange = writeRow(Change)

/**
 * The write side of the store: one fiber takes all writes that wait, runs them in one transaction, commits, publishes
 * the journal's new entries and only then answers the callers. Failures are answered after the commit too: they may
 * rest on what an earlier mutation of the same transaction has done.
 */
export const makeGroupCommit = Effect.fnUntraced(function* (options: {
  readonly sql: SqlClient.SqlClient
  readonly publish: (entries: ReadonlyArray<JournalEntry>) => Effect.Effect<void>
}): Effect.fn.Return<Write, never, Scope.Scope> {
  const { sql, publish } = options
  const { append } = journalTable(sql)
  const queue = yield* Queue.unbounded<Job, Cause.Done>()

  const transaction = (jobs: ReadonlyArray<Job>) =>
    sql.withTransaction(
      Effect.gen(function* () {
        for (const job of jobs) yield* job.attempt
        const changes = jobs.flatMap((job) => job.changes())
        return changes.length === 0 ? [] : yield* append(changes)
      })
    )

  const commit = Effect.fnUntraced(
    function* (jobs: ReadonlyArray<Job>) {
      if (jobs.length === 0) return
      const entries = yield* transaction(jobs)
      yield* Metric.update(storeCommits, 1)
      yield* Metric.update(storeMutations, jobs.length)
      yield* publish(entries)
      yield* Effect.forEach(jobs, (job) => job.settle, { discard: true })
    },
    (self, jobs) =>
      Effect.catchCause(self, (cause) =>
        Effect.andThen(
          Effect.logError("a write transaction has failed; nothing of it was kept", cause),
          Effect.forEach(jobs, (job) => job.reject, { discard: true })
        )
      )
  )

  const writer = yield* Queue.takeBetween(queue, 1, MAX_BATCH).pipe(
    Effect.flatMap((jobs) => commit(jobs.filter((job) => !job.cancelled))),
    Effect.forever,
    Effect.catchTag("Done", () => Effect.void),
    Effect.forkScoped
  )
  // Runs before the fork's own finalizer: the queue is emptied, not abandoned.
  yield* Effect.addFinalizer(() => Effect.andThen(Queue.end(queue), Fiber.await(writer)))

  return <A, E>(mutation: Effect.Effect<A, E, Transaction>) =>
    Effect.withFiber<A, Answered<E>>((caller) => {
      if (caller === writer) {
        return Effect.die(
          new Error("a mutation or a follower of the journal cannot write: it waits for itself")
        )
      }
      const answer = Deferred.makeUnsafe<A, Answered<E>>()
      const job = makeJob({ sql, mutation, answer, context: caller.context })
      if (!Queue.offerUnsafe(queue, job)) return Effect.fail(Unavailable.store())
      return Effect.onInterrupt(Deferred.await(answer), () =>
        Effect.sync(() => {
          job.cancelled = true
        })
      )
    })
})

const makeJob = <A, E>(options: {
  readonly sql: SqlClient.SqlClient
  readonly mutation: Effect.Effect<A, E, Transaction>
  readonly answer: Deferred.Deferred<A, Answered<E>>
  /** The caller's: its log annotations and span go with the mutation. */
  readonly context: Context.Context<never>
}): Job => {
  const { sql, mutation, answer, context } = options
  let outcome: Exit.Exit<A, Answered<E>> = Exit.fail(Unavailable.store())
  let changes: Array<PendingChange> = []
  const appender = Transaction.of({
    append: (change, blueprint_id) =>
      Effect.map(encodeChange(change), () => {
        changes.push({ change, blueprint_id })
      })
  })
  return {
    cancelled: false,
    changes: () => changes,
    settle: Effect.suspend(() => Deferred.done(answer, outcome)),
    reject: Effect.suspend(() => Deferred.fail(answer, Unavailable.store())),
    attempt: sql.withTransaction(mutation).pipe(
      Effect.provideService(Transaction, appender),
      Effect.provideContext(context),
      Effect.exit,
      Effect.flatMap((exit) => {
        if (Exit.isSuccess(exit)) {
          outcome = Exit.succeed(exit.value)
          return Effect.void
        }
        changes = []
        const lost = exit.cause.reasons.map(sqlErrorOf).find((error) => error && isDatabaseAway(error))
        if (lost !== undefined) return Effect.fail(lost)
        outcome = Exit.failCause(mistakesAsDefects(exit.cause))
        return Effect.void
      })
    )
  }
}

const sqlErrorOf = (reason: Cause.Reason<unknown>): SqlError.SqlError | undefined => {
  const value = Cause.isFailReason(reason)
    ? reason.error
    : Cause.isDieReason(reason)
      ? reason.defect
      : undefined
  return SqlError.isSqlError(value) ? value : undefined
}

/** A {@link SqlError} that is the statement's own fault is a defect of the mutation. */
const mistakesAsDefects = <E>(cause: Cause.Cause<E>): Cause.Cause<Exclude<E, SqlError.SqlError>> =>
  Cause.fromReasons(
    cause.reasons.map((reason) =>
      Cause.isFailReason(reason) && SqlError.isSqlError(reason.error)
        ? Cause.makeDieReason(reason.error)
        : // What is left is no SqlError; TypeScript does not narrow a type parameter.
          (reason as Cause.Reason<Exclude<E, SqlError.SqlError>>)
    )
  )
