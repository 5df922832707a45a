import { type Cause, Clock, Effect, Fiber, FiberSet, Metric, Queue, type Scope } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { Unavailable } from "../domain/errors.ts"
import type { JournalEntry } from "../domain/Journal.ts"
import type { Backend, CommitToken } from "./Backend.ts"
import { type Answered, type Job, makeJob } from "./job.ts"
import { journalTable, type PendingChange } from "./journalTable.ts"
import { storeCommits, storeMutations } from "./metrics.ts"
import { isContention, isLostConnection, sqlErrorIn } from "./sqlErrors.ts"
import type { Transaction } from "./Transaction.ts"

/** Mutations that share one commit at most: bounds how long a transaction holds the database. */
const MAX_BATCH = 500

/**
 * How long a transaction that was rolled back for a passing reason is tried again, in milliseconds: a lost connection
 * may mean that the database is gone, and then finding out takes its time, too.
 */
const RETRY_LOST_MILLIS = 200
const RETRY_CONTENTION_MILLIS = 600
const MAX_ATTEMPTS = 10

type Write = <A, E>(mutation: Effect.Effect<A, E, Transaction>) => Effect.Effect<A, Answered<E>>

/** What has become of a transaction. */
type Outcome =
  | { readonly _tag: "committed"; readonly jobs: ReadonlyArray<Job>; readonly entries: Entries }
  /** Nothing of it was kept. */
  | {
      readonly _tag: "lost"
      readonly jobs: ReadonlyArray<Job>
      readonly cause: Cause.Cause<SqlError.SqlError>
    }
  /** The answer to its COMMIT has not come. */
  | {
      readonly _tag: "unknown"
      readonly jobs: ReadonlyArray<Job>
      readonly entries: Entries
      readonly token: CommitToken | undefined
      readonly cause: Cause.Cause<SqlError.SqlError>
    }

type Entries = ReadonlyArray<JournalEntry>

/**
 * The write side of the store: one fiber takes all writes that wait, runs them in one transaction, commits, publishes
 * the journal's new entries and only then answers the callers. Failures are answered after the commit too: they may
 * rest on what an earlier mutation of the same transaction has done. While the database is away nobody waits: writes
 * fail at once, but for those whose COMMIT was under way; they are answered when it is known what became of it.
 */
export const makeGroupCommit = Effect.fnUntraced(function* (options: {
  readonly sql: SqlClient.SqlClient
  readonly backend: Backend["Service"]
  /** Hands entries to the followers; fails when earlier entries of others cannot be read. */
  readonly publish: (entries: Entries) => Effect.Effect<void, SqlError.SqlError>
  /** Hands entries to the followers, whatever came before them. */
  readonly publishAnyway: (entries: Entries) => Effect.Effect<void>
}): Effect.fn.Return<Write, never, Scope.Scope> {
  const { backend, publish, publishAnyway, sql } = options
  const { append } = journalTable(sql)
  const queue = yield* Queue.unbounded<Job, Cause.Done>()
  const endings = yield* FiberSet.make<void, never>()
  const publishers = new Set<Fiber.Fiber<unknown, unknown>>()

  const appended = Effect.fnUntraced(function* (changes: ReadonlyArray<PendingChange>) {
    const { entries, transaction } = yield* append(changes, backend.sealing)
    return { entries, token: transaction === undefined ? undefined : { transaction } }
  })

  /** One transaction with as many of the jobs as there is time for. */
  const transaction = Effect.fnUntraced(function* (all: ReadonlyArray<Job>): Effect.fn.Return<Outcome> {
    let jobs: ReadonlyArray<Job> = all
    let sealed: { readonly entries: Entries; readonly token: CommitToken | undefined } | undefined
    const body = Effect.gen(function* () {
      yield* backend.takeTurn
      const began = yield* Clock.currentTimeMillis
      for (const [index, job] of all.entries()) {
        if (index > 0 && (yield* Clock.currentTimeMillis) - began > backend.transactionMillis) {
          jobs = all.slice(0, index)
          break
        }
        yield* job.attempt
      }
      const changes = jobs.flatMap((job) => job.changes())
      sealed = changes.length === 0 ? { entries: [], token: yield* backend.seal } : yield* appended(changes)
      return sealed.entries
    })
    return yield* Effect.matchCause(sql.withTransaction(body), {
      onSuccess: (entries): Outcome => ({ _tag: "committed", jobs, entries }),
      onFailure: (cause): Outcome =>
        sealed === undefined
          ? { _tag: "lost", jobs: all, cause }
          : { _tag: "unknown", jobs, ...sealed, cause }
    })
  })

  const settleAll = (jobs: ReadonlyArray<Job>) => Effect.forEach(jobs, (job) => job.settle, { discard: true })

  const reject = (jobs: ReadonlyArray<Job>, cause: Cause.Cause<SqlError.SqlError>) =>
    Effect.andThen(logLost(cause, backend.isAway()), () =>
      Effect.forEach(jobs, (job) => job.reject(Unavailable.store()), { discard: true })
    )

  /** In the one total order: what others have committed before comes first. */
  const deliver = (entries: Entries): Effect.Effect<void> =>
    Effect.catch(publish(entries), (error) =>
      Effect.logWarning(`journal entries of others cannot be read yet: ${error.message}`).pipe(
        Effect.andThen(backend.readAgain),
        Effect.flatMap((again) => (again ? deliver(entries) : publishAnyway(entries)))
      )
    )

  const end = Effect.fnUntraced(
    function* (outcome: Exclude<Outcome, { readonly _tag: "lost" }>) {
      const { entries, jobs } = outcome
      if (outcome._tag === "unknown" && !(yield* backend.wasCommitted(outcome.token))) {
        return yield* reject(jobs, outcome.cause)
      }
      yield* Metric.update(storeCommits, 1)
      yield* Metric.update(storeMutations, jobs.length)
      yield* deliver(entries)
      yield* settleAll(jobs)
    },
    (self, { jobs }) =>
      Effect.withFiber<void>((fiber) => {
        publishers.add(fiber)
        return self.pipe(
          Effect.onInterrupt(() =>
            Effect.forEach(jobs, (job) => job.reject(Unavailable.storeUnknown()), { discard: true })
          ),
          Effect.ensuring(Effect.sync(() => publishers.delete(fiber)))
        )
      })
  )

  /** Whether a transaction that was lost is worth another try: nothing of it is left. */
  const passes = (cause: Cause.Cause<SqlError.SqlError>, sinceMillis: number): boolean => {
    if (backend.isAway()) return false
    const error = sqlErrorIn(cause)
    if (error === undefined) return false
    if (isContention(error)) return sinceMillis < RETRY_CONTENTION_MILLIS
    return isLostConnection(error) && sinceMillis < RETRY_LOST_MILLIS
  }

  /** Answers the jobs that had no part in a transaction yet. */
  const commit = Effect.fnUntraced(function* (jobs: ReadonlyArray<Job>) {
    const began = yield* Clock.currentTimeMillis
    for (let attempt = 1; ; attempt++) {
      const outcome = yield* transaction(jobs)
      if (outcome._tag === "lost") {
        const since = (yield* Clock.currentTimeMillis) - began
        if (backend.retries && attempt < MAX_ATTEMPTS && passes(outcome.cause, since)) continue
        yield* reject(jobs, outcome.cause)
        return []
      }
      const ending = yield* FiberSet.run(endings, end(outcome))
      // What is answered when the database is back must not hold up those that can be answered now.
      yield* Effect.raceFirst(Effect.asVoid(Fiber.await(ending)), backend.away)
      return jobs.slice(outcome.jobs.length)
    }
  })

  const commitAll = Effect.fnUntraced(function* (taken: ReadonlyArray<Job>) {
    let waiting: ReadonlyArray<Job> = taken
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
  // Runs before the fork's own finalizer: the queue is emptied, not abandoned.
  yield* Effect.addFinalizer(() => Effect.andThen(Queue.end(queue), Fiber.await(writer)))

  return <A, E>(mutation: Effect.Effect<A, E, Transaction>) =>
    Effect.withFiber<A, Answered<E>>((caller) => {
      if (caller === writer || publishers.has(caller)) {
        return Effect.die(
          new Error("a mutation or a follower of the journal cannot write: it waits for itself")
        )
      }
      if (backend.isAway()) return Effect.fail(Unavailable.store())
      const { answer, job } = makeJob({ sql, mutation, context: caller.context })
      if (!Queue.offerUnsafe(queue, job)) return Effect.fail(Unavailable.store())
      return Effect.onInterrupt(answer, () =>
        Effect.sync(() => {
          job.cancelled = true
        })
      )
    })
})

/** What the database says is one line; anything else is for a report. */
const logLost = (cause: Cause.Cause<SqlError.SqlError>, isAway: boolean) => {
  const error = sqlErrorIn(cause)
  const lost = "a write transaction has failed; nothing of it was kept"
  if (error === undefined) return Effect.logError(lost, cause)
  // The log has said why the database is away.
  return isAway ? Effect.logDebug(`${lost}: ${error.message}`) : Effect.logError(`${lost}: ${error.message}`)
}
