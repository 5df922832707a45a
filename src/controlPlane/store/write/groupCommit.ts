import { Cause, Context, Deferred, Effect, Fiber, FiberSet, Metric, Queue } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { Unavailable } from "../../../contract/domain/errors.ts"
import { storeCommits, storeMutations } from "../../../shared/observability/metrics.ts"
import { elapsedMillis } from "../../../shared/work/elapsed.ts"
import { type DatabaseDisk, MayUseReserve } from "../disk/DatabaseDisk.ts"
import type { Journal } from "../journal/Journal.ts"
import type { Backend } from "../sql/Backend.ts"
import {
  isContention,
  isDiskFull,
  isLostConnection,
  isRefused,
  sqlErrorIn,
  unavailableOf
} from "../sql/sqlErrors.ts"
import { Transaction } from "../sql/Transaction.ts"
import {
  type Answered,
  type Entries,
  type Job,
  type Mutation,
  makeJob,
  makeWriteTransaction,
  mistakesAsDefects,
  type TransactionResult
} from "./writeTransaction.ts"

/** The time that callers wait for the outcome of an unanswered COMMIT once the database is unavailable, in ms. */
const UNKNOWN_AFTER_MILLIS = 200

interface WriteOptions {
  readonly sql: SqlClient.SqlClient
  readonly backend: Backend["Service"]
  readonly disk: DatabaseDisk["Service"]
  readonly journal: Pick<Journal["Service"], "publish" | "publishAnyway">
}

/** Ends transactions: publishes their entries to the followers of the journal, and answers their callers. */
const makeEndings = ({ backend, disk, journal }: WriteOptions) => {
  const publishers = new Set<Fiber.Fiber<unknown, unknown>>()

  const rejectAll = (jobs: ReadonlyArray<Job>, cause: Cause.Cause<Unavailable>) =>
    Effect.sync(() => {
      for (const { answered } of jobs) Deferred.doneUnsafe(answered, Effect.failCause(cause))
    })

  const rejectWith = (jobs: ReadonlyArray<Job>, error: Unavailable) => rejectAll(jobs, Cause.fail(error))

  /** Fails the callers of a transaction that was lost. */
  const reject = Effect.fnUntraced(function* (
    jobs: ReadonlyArray<Job>,
    cause: Cause.Cause<SqlError.SqlError>
  ) {
    const error = sqlErrorIn(cause)
    if (error !== undefined && isDiskFull(error))
      return yield* rejectWith(jobs, yield* disk.failed(jobs.length))
    yield* logLost(cause, backend.isAway())
    yield* isRefused(cause)
      ? rejectAll(jobs, mistakesAsDefects(cause))
      : rejectWith(jobs, unavailableOf(error))
  })

  /** In the one total order: earlier commits of other processes come first. */
  const deliver = (entries: Entries): Effect.Effect<void> =>
    Effect.catch(journal.publish(entries), (error) =>
      Effect.logWarning(`journal entries of others cannot be read yet: ${error.message}`).pipe(
        Effect.andThen(backend.readAgain),
        Effect.flatMap((again) => (again ? deliver(entries) : journal.publishAnyway(entries)))
      )
    )

  const rejectUnknown = (jobs: ReadonlyArray<Job>) => rejectWith(jobs, Unavailable.storeUnknown())

  /** Fails the callers if the database is unavailable for longer than they wait; never ends. */
  const giveUp = (jobs: ReadonlyArray<Job>) =>
    backend.away.pipe(
      Effect.andThen(Effect.sleep(UNKNOWN_AFTER_MILLIS)),
      Effect.repeat({ until: () => backend.isAway() }),
      Effect.andThen(rejectUnknown(jobs)),
      Effect.andThen(Effect.never)
    )

  /** Answers the callers of a transaction that was committed, or whose COMMIT was not answered. */
  const end = Effect.fnUntraced(
    function* (outcome: Exclude<TransactionResult, { readonly _tag: "lost" }>) {
      const { entries, jobs } = outcome
      if (outcome._tag === "unknown") {
        const known = yield* Effect.raceFirst(backend.outcomeOf(outcome.token), giveUp(jobs))
        if (known === "unknown") return yield* rejectUnknown(jobs)
        if (known === "lost") return yield* reject(jobs, outcome.cause)
      }
      yield* disk.committed
      yield* Metric.update(storeCommits, 1)
      yield* Metric.update(storeMutations, jobs.length)
      for (const [request, record] of outcome.audits) request.committed(record)
      yield* deliver(entries)
      for (const { answered, outcome } of jobs) Deferred.doneUnsafe(answered, outcome)
    },
    (self, { jobs }) =>
      Effect.withFiber<void>((fiber) => {
        publishers.add(fiber)
        return self.pipe(
          Effect.onInterrupt(() => rejectUnknown(jobs)),
          Effect.ensuring(Effect.sync(() => publishers.delete(fiber)))
        )
      })
  )

  return {
    reject,
    end,
    /** Whether a fiber calls the followers of the journal. */
    isPublishing: (fiber: Fiber.Fiber<unknown, unknown>) => publishers.has(fiber)
  }
}

/** An error of the database is one line; any other cause is for a bug report. */
const logLost = (cause: Cause.Cause<SqlError.SqlError>, isAway: boolean) => {
  const error = sqlErrorIn(cause)
  const lost = "a write transaction has failed; nothing of it was kept"
  if (error === undefined) return Effect.logError(lost, cause)
  // The log has the reason of the unavailability.
  return isAway ? Effect.logDebug(`${lost}: ${error.message}`) : Effect.logError(`${lost}: ${error.message}`)
}

/** Mutations per commit: bounds the time that a transaction holds the database. */
const MAX_BATCH = 500

/** Milliseconds of retries after a transient rollback: it takes time to detect that the database is gone. */
const RETRY_LOST_MILLIS = 200
const RETRY_CONTENTION_MILLIS = 600
const MAX_ATTEMPTS = 10

/**
 * One fiber runs waiting writes in one transaction, commits, publishes to the journal and answers, failures too,
 * which may depend on an earlier mutation. A write with an interrupted COMMIT fails with an unknown outcome; once
 * that is known, followers receive its entries.
 */
export const makeGroupCommit = Effect.fnUntraced(function* (options: WriteOptions) {
  const { backend, disk, sql } = options
  const queue = yield* Queue.unbounded<Job, Cause.Done>()
  const running = yield* FiberSet.make<void, never>()
  const transaction = makeWriteTransaction({ sql, backend })
  const { end, isPublishing, reject } = makeEndings(options)

  /** Whether a lost transaction is retried: nothing of it remains. */
  const passes = (cause: Cause.Cause<SqlError.SqlError>, sinceMillis: number): boolean => {
    if (backend.isAway()) return false
    const error = sqlErrorIn(cause)
    if (error === undefined) return false
    if (isContention(error)) return sinceMillis < RETRY_CONTENTION_MILLIS
    return isLostConnection(error) && sinceMillis < RETRY_LOST_MILLIS
  }

  /** Returns the jobs that did not fit. A refused batch is tried in halves, so that only the culprit fails. */
  const commit = Effect.fnUntraced(function* (
    jobs: ReadonlyArray<Job>
  ): Effect.fn.Return<ReadonlyArray<Job>> {
    const began = yield* elapsedMillis
    for (let attempt = 1; ; attempt++) {
      const outcome = yield* transaction(jobs)
      if (outcome._tag !== "lost") {
        const ending = yield* FiberSet.run(running, end(outcome))
        // Jobs that wait for the database must not delay those that can be completed now.
        yield* Effect.raceFirst(Effect.asVoid(Fiber.await(ending)), backend.away)
        return outcome.left
      }
      const since = (yield* elapsedMillis) - began
      if (backend.retries && attempt < MAX_ATTEMPTS && passes(outcome.cause, since)) continue
      if (jobs.length > 1 && isRefused(outcome.cause)) {
        const half = Math.ceil(jobs.length / 2)
        yield* commitAll(jobs.slice(0, half))
        yield* commitAll(jobs.slice(half))
      } else yield* reject(jobs, outcome.cause)
      return []
    }
  })

  const commitAll = Effect.fnUntraced(function* (taken: ReadonlyArray<Job>): Effect.fn.Return<void> {
    let waiting = taken
    while (waiting.length > 0) {
      waiting = waiting.filter((job) => !job.cancelled)
      if (waiting.length > 0) waiting = yield* commit(waiting)
    }
  })

  const writer = yield* Queue.takeBetween(queue, 1, MAX_BATCH).pipe(
    Effect.flatMap(commitAll),
    Effect.forever,
    Effect.catchTag("Done", () => Effect.void),
    Effect.forkScoped
  )
  // Runs before the fork's own finalizer: the queue is completed, not abandoned.
  yield* Effect.addFinalizer(() => Effect.andThen(Queue.end(queue), Fiber.await(writer)))

  return <Request, A, E>(mutation: Mutation<Request, A, E>) =>
    (request: Request): Effect.Effect<A, Answered<E>> =>
      Effect.withFiber((caller) => {
        if (Context.getOption(caller.context, Transaction)._tag === "Some" || isPublishing(caller)) {
          return Effect.die(
            new Error("a mutation or a follower of the journal cannot write: it waits for itself")
          )
        }
        if (backend.isAway()) return Effect.fail(Unavailable.store())
        if (disk.refuses() && !Context.get(caller.context, MayUseReserve)) {
          return Effect.flatMap(disk.refuse(1), Effect.fail)
        }
        const { answer, job } = makeJob(mutation, request, caller.context)
        if (!Queue.offerUnsafe(queue, job)) return Effect.fail(Unavailable.store())
        return Effect.onInterrupt(answer, () =>
          Effect.sync(() => {
            job.cancelled = true
          })
        )
      })
})
