import { Array as Arr, Cause, type Context, Deferred, Effect, Exit } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { type AuditedRequest, type AuditRecord, auditedBy } from "../../../contract/domain/AuditedRequest.ts"
import { Unavailable } from "../../../contract/domain/errors.ts"
import type { JournalEntry } from "../../../contract/domain/Journal.ts"
import { elapsedMillis } from "../../../shared/work/elapsed.ts"
import { checkChange, journalTable, type PendingChange } from "../journal/journalTable.ts"
import { auditTable } from "../repos/AuditRepo.ts"
import type { Backend, CommitToken } from "../sql/Backend.ts"
import { isAborted, isDatabaseAway, isRefused, isSqlError, sqlErrorIn } from "../sql/sqlErrors.ts"
import { Transaction } from "../sql/Transaction.ts"

export type Answered<E> = Exclude<E, SqlError.SqlError> | Unavailable

export type Mutation<Request, A, E> = (
  requests: ReadonlyArray<Request>
) => Effect.Effect<ReadonlyArray<A>, E, Transaction>

/** A write that waits for its transaction. Its mutation can carry out several requests. */
export interface Job {
  readonly mutation: Mutation<unknown, unknown, unknown>
  readonly request: unknown
  /** The context of the caller: the mutation has its log annotations and its span. */
  readonly context: Context.Context<never>
  readonly answered: Deferred.Deferred<unknown, unknown>
  /** The outcome of the last attempt. */
  outcome: Exit.Exit<unknown, unknown>
  /** The caller was interrupted while the job waited. */
  cancelled: boolean
}

/** The outcome of a request before its first attempt, made once because every write has it. */
const notAttempted = Exit.fail(Unavailable.store())

export const makeJob = <Request, A, E>(
  mutation: Mutation<Request, A, E>,
  request: Request,
  context: Context.Context<never>
) => {
  const answered = Deferred.makeUnsafe<A, Answered<E>>()
  // The types are erased: a mutation gets only requests of its own jobs, whose answers it makes.
  const job: Job = {
    mutation: mutation as Job["mutation"],
    request,
    context,
    answered: answered as Job["answered"],
    outcome: notAttempted,
    cancelled: false
  }
  return { job, answer: Deferred.await(answered) }
}

/**
 * Runs the mutation of jobs in a savepoint; if it fails for several, it is undone and each runs alone. Returns the
 * changes that it has appended. Fails only if the whole transaction is lost, and can be repeated then.
 */
const carryOut = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  jobs: ReadonlyArray<Job>
): Effect.fn.Return<ReadonlyArray<PendingChange>, SqlError.SqlError> {
  const [first] = jobs
  if (first === undefined) return []
  const isAlone = jobs.length === 1
  const appended: Array<PendingChange> = []
  const transaction = Transaction.of({
    append: (change, { blueprint_id, labels = {} } = { blueprint_id: "" }) =>
      Effect.map(checkChange(change), () => {
        appended.push({ change, blueprint_id, ...(Object.keys(labels).length === 0 ? {} : { labels }) })
      })
  })
  const exit = yield* Effect.suspend(() => first.mutation(jobs.map(({ request }) => request))).pipe(
    Effect.tap((answers) => (answers.length === jobs.length ? Effect.void : Effect.die(unanswered(jobs)))),
    sql.withTransaction,
    Effect.provideService(Transaction, transaction),
    (run) => (isAlone ? Effect.provideContext(run, first.context) : run),
    Effect.exit
  )
  if (Exit.isSuccess(exit)) {
    for (const [index, job] of jobs.entries()) job.outcome = Exit.succeed(exit.value[index])
    return appended
  }
  const error = sqlErrorIn(exit.cause)
  // Aborted: the failed statement may be one of an earlier mutation, whose answer was not awaited.
  if (error !== undefined && (isDatabaseAway(error) || isAborted(error))) return yield* error
  if (!isAlone) return (yield* Effect.forEach(jobs, (job) => carryOut(sql, [job]))).flat()
  first.outcome = Exit.failCause(mistakesAsDefects(exit.cause))
  return []
})

const unanswered = (jobs: ReadonlyArray<Job>) =>
  new Error(`a mutation has not answered each of its ${jobs.length} requests`)

/** A SqlError of the statement itself is a defect of the mutation. */
export const mistakesAsDefects = <E>(cause: Cause.Cause<E>): Cause.Cause<Exclude<E, SqlError.SqlError>> =>
  Cause.fromReasons(
    cause.reasons.map((reason) =>
      Cause.isFailReason(reason) && isSqlError(reason.error)
        ? Cause.makeDieReason(reason.error)
        : // No SqlError remains; TypeScript does not narrow a type parameter.
          (reason as Cause.Reason<Exclude<E, SqlError.SqlError>>)
    )
  )

/** Jobs per mutation; the time is checked between mutations. */
const MAX_TOGETHER = 50

export type Entries = ReadonlyArray<JournalEntry>

export interface Sealed {
  /** The jobs in it, and those that did not fit. */
  readonly jobs: ReadonlyArray<Job>
  readonly left: ReadonlyArray<Job>
  readonly entries: Entries
  /** The audit entries in it, with their requests. */
  readonly audits: ReadonlyArray<readonly [AuditedRequest, AuditRecord]>
  readonly token: CommitToken | undefined
}

export type TransactionResult =
  | ({ readonly _tag: "committed" } & Sealed)
  /** Nothing was kept. */
  | { readonly _tag: "lost"; readonly cause: Cause.Cause<SqlError.SqlError> }
  /** The COMMIT was not answered. */
  | ({ readonly _tag: "unknown"; readonly cause: Cause.Cause<SqlError.SqlError> } & Sealed)

/** Returns a function that runs jobs in one transaction, with the entries of the journal and of the audit log. */
export const makeWriteTransaction = (options: {
  readonly sql: SqlClient.SqlClient
  readonly backend: Backend["Service"]
}) => {
  const { backend, sql } = options
  const journal = journalTable(sql)
  const audit = auditTable(sql)

  return (jobs: ReadonlyArray<Job>): Effect.Effect<TransactionResult> =>
    Effect.suspend(() => {
      let sealed: Sealed | undefined
      /** The time at which the transaction became the only writer. */
      let began: number | undefined
      const done = new Set<Job>()
      const changes: Array<PendingChange> = []

      const attempt = Effect.gen(function* () {
        for (const together of togetherOf(jobs)) {
          const now = yield* elapsedMillis
          if (done.size > 0 && began !== undefined && now - began > backend.transactionMillis) return
          for (const job of together) done.add(job)
          changes.push(...(yield* carryOut(sql, together)))
        }
      })
      const turn = Effect.gen(function* () {
        const taken = yield* Effect.all([backend.acquireWriteLock, journal.newest], {
          concurrency: "unbounded"
        })
        began = yield* elapsedMillis
        return taken
      })

      const body = Effect.gen(function* () {
        // The first statements run once the lock is acquired.
        const [[token, newest]] = yield* Effect.all([turn, attempt], { concurrency: "unbounded" })
        const entries = yield* journal.numbered(changes, newest)
        const audits = auditsOf(done)
        yield* Effect.all(
          [audit.put(audits.map(([, pending]) => pending)), journal.append(entries, backend.notifyClause)],
          { concurrency: "unbounded" }
        )
        sealed = { jobs: [...done], left: jobs.filter((job) => !done.has(job)), entries, audits, token }
        return sealed
      })
      return Effect.matchCause(sql.withTransaction(body), {
        onSuccess: (committed): TransactionResult => ({ _tag: "committed", ...committed }),
        onFailure: (cause): TransactionResult =>
          sealed === undefined || isRefused(cause)
            ? { _tag: "lost", cause }
            : { _tag: "unknown", ...sealed, cause }
      })
    })
}

/** Returns the jobs of each mutation, in the order of its first job. */
const togetherOf = (jobs: ReadonlyArray<Job>): ReadonlyArray<ReadonlyArray<Job>> =>
  Array.from(Map.groupBy(jobs, ({ mutation }) => mutation).values()).flatMap((same) =>
    Arr.chunksOf(same, MAX_TOGETHER)
  )

/** Returns the audit entries of the requests whose writes have succeeded. */
const auditsOf = (jobs: Iterable<Job>): Sealed["audits"] => {
  const requests = Array.from(jobs, ({ context, outcome }) =>
    Exit.isSuccess(outcome) ? auditedBy(context) : undefined
  )
  return Array.from(new Set(requests)).flatMap((request) => {
    const pending = request?.carried()
    return request === undefined || pending === undefined ? [] : [[request, pending] as const]
  })
}
