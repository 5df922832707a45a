import { type Cause, Context, Effect, Fiber, FiberSet, Queue } from "effect"
import type { SqlError } from "effect/sql"
import { Unavailable } from "../../../contract/domain/errors.ts"
import { elapsedMillis } from "../../../shared/work/elapsed.ts"
import { MayUseReserve } from "../disk/DatabaseDisk.ts"
import { isContention, isLostConnection, isRefused, sqlErrorIn } from "../sql/sqlErrors.ts"
import { Transaction } from "../sql/Transaction.ts"
import { makeEndings, type WriteOptions } from "./endings.ts"
import { type Answered, type Job, type Mutation, makeJob, makeWriteTransaction } from "./writeTransaction.ts"

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
