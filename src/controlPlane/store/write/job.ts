import { Cause, type Context, Deferred, Effect, Exit } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { Unavailable } from "../../../contract/domain/errors.ts"
import { checkChange, type PendingChange } from "../journal/journalTable.ts"
import { isAborted, isDatabaseAway, isSqlError, sqlErrorIn } from "../sql/sqlErrors.ts"
import { Transaction } from "../sql/Transaction.ts"

export type Answered<E> = Exclude<E, SqlError.SqlError> | Unavailable

export type Mutation<Request, A, E> = (
  requests: ReadonlyArray<Request>
) => Effect.Effect<ReadonlyArray<A>, E, Transaction>

/** A write that waits for its transaction. Its mutation can carry out several requests. */
export interface Job {
  readonly mutation: Mutation<unknown, unknown, unknown>
  readonly request: unknown
  /** The caller's, with the log annotations and span for a mutation of its own. */
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
export const carryOut = Effect.fnUntraced(function* (
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
