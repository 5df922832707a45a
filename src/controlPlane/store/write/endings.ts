import { Cause, Deferred, Effect, type Fiber, Metric } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { Unavailable } from "../../../contract/domain/errors.ts"
import { storeCommits, storeMutations } from "../../../shared/observability/metrics.ts"
import type { DatabaseDisk } from "../disk/DatabaseDisk.ts"
import type { Journal } from "../journal/Journal.ts"
import type { Backend } from "../sql/Backend.ts"
import { isDiskFull, isRefused, sqlErrorIn, unavailableOf } from "../sql/sqlErrors.ts"
import { type Entries, type Job, mistakesAsDefects, type TransactionResult } from "./writeTransaction.ts"

/** The time that callers wait for the outcome of an unanswered COMMIT once the database is unavailable, in ms. */
const UNKNOWN_AFTER_MILLIS = 200

export interface WriteOptions {
  readonly sql: SqlClient.SqlClient
  readonly backend: Backend["Service"]
  readonly disk: DatabaseDisk["Service"]
  readonly journal: Pick<Journal["Service"], "publish" | "publishAnyway">
}

/** Ends transactions: publishes their entries to the followers of the journal, and answers their callers. */
export const makeEndings = ({ backend, disk, journal }: WriteOptions) => {
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
