import { Cause, type Context, Deferred, Effect, Exit } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { type AuditedRequest, auditedBy } from "../../../contract/domain/AuditedRequest.ts"
import { Unavailable } from "../../../contract/domain/errors.ts"
import type { PendingChange } from "../journal/journalTable.ts"
import { checkChange } from "../journal/journalTable.ts"
import { isAborted, isDatabaseAway, isSqlError, sqlErrorIn } from "../sql/sqlErrors.ts"
import { Transaction } from "../sql/Transaction.ts"

export interface Job {
  /** One mutation can carry out jobs of one kind. */
  readonly kind: Kind
  /** Completes the caller with the outcome of the last attempt. */
  readonly settle: () => void
  readonly reject: (cause: Cause.Cause<Unavailable>) => void
  /** The caller was interrupted while the job waited. */
  cancelled: boolean
}

export interface Kind {
  /** @param jobs of this kind */
  together(jobs: ReadonlyArray<Job>): Unit
}

export interface Unit {
  readonly jobs: ReadonlyArray<Job>
  /** Runs the mutation in a savepoint; fails only if the whole transaction is lost. Can be repeated then. */
  readonly attempt: Effect.Effect<void, SqlError.SqlError>
  /** The changes that the mutation has appended; empty after a failure. */
  readonly changes: () => ReadonlyArray<PendingChange>
  /** The audited requests whose writes have succeeded. */
  readonly audited: () => ReadonlyArray<AuditedRequest>
}

export type Answered<E> = Exclude<E, SqlError.SqlError> | Unavailable

export type Mutation<Request, A, E> = (
  requests: ReadonlyArray<Request>
) => Effect.Effect<ReadonlyArray<A>, E, Transaction>

/** The outcome of a request before its first attempt, made once because every write has it. */
const notAttempted = Exit.fail(Unavailable.store())

/** A request of a caller, with the log annotations and span for a mutation of its own. */
interface Entry<Request, A, E> {
  readonly request: Request
  readonly context: Context.Context<never>
  outcome: Exit.Exit<A, Answered<E>>
}

/** If `mutation` fails for several writes, it is undone and each runs alone. */
export const makeKind = <Request, A, E>(sql: SqlClient.SqlClient, mutation: Mutation<Request, A, E>) => {
  const entryOf = new WeakMap<Job, Entry<Request, A, E>>()

  const together = (jobs: ReadonlyArray<Job>): Unit => {
    const entries = jobs.flatMap((job) => entryOf.get(job) ?? [])
    let changes: ReadonlyArray<PendingChange> = []

    const carryOut = (some: ReadonlyArray<Entry<Request, A, E>>): Effect.Effect<void, SqlError.SqlError> => {
      const appended: Array<PendingChange> = []
      const transaction = Transaction.of({
        append: (change, { blueprint_id, labels = {} } = { blueprint_id: "" }) =>
          Effect.map(checkChange(change), () => {
            appended.push({
              change,
              blueprint_id,
              ...(Object.keys(labels).length === 0 ? {} : { labels })
            })
          })
      })
      const [first] = some
      const alone = some.length === 1 ? first : undefined
      return Effect.suspend(() => mutation(some.map(({ request }) => request))).pipe(
        Effect.tap((answers) =>
          answers.length === some.length ? Effect.void : Effect.die(unanswered(some))
        ),
        sql.withTransaction,
        Effect.provideService(Transaction, transaction),
        (run) => (alone === undefined ? run : Effect.provideContext(run, alone.context)),
        Effect.exit,
        Effect.flatMap((exit) => {
          if (Exit.isSuccess(exit)) {
            changes = [...changes, ...appended]
            for (const [index, answer] of exit.value.entries()) {
              const entry = some[index]
              if (entry !== undefined) entry.outcome = Exit.succeed(answer)
            }
            return Effect.void
          }
          const error = sqlErrorIn(exit.cause)
          // Aborted: the failed statement may be one of an earlier mutation, whose answer was not awaited.
          if (error !== undefined && (isDatabaseAway(error) || isAborted(error))) return Effect.fail(error)
          if (alone === undefined) {
            return Effect.forEach(some, (entry) => carryOut([entry]), { discard: true })
          }
          alone.outcome = Exit.failCause(mistakesAsDefects(exit.cause))
          return Effect.void
        })
      )
    }

    return {
      jobs,
      attempt: Effect.suspend(() => {
        changes = []
        return carryOut(entries)
      }),
      changes: () => changes,
      audited: () =>
        entries.flatMap(({ context, outcome }) => (Exit.isSuccess(outcome) ? (auditedBy(context) ?? []) : []))
    }
  }

  const kind: Kind = { together }

  /** @param context the caller's */
  const submit = (request: Request, context: Context.Context<never>) => {
    const answered = Deferred.makeUnsafe<A, Answered<E>>()
    const entry: Entry<Request, A, E> = { request, context, outcome: notAttempted }
    const job: Job = {
      kind,
      cancelled: false,
      settle: () => Deferred.doneUnsafe(answered, entry.outcome),
      reject: (cause) => Deferred.doneUnsafe(answered, Exit.failCause(cause))
    }
    entryOf.set(job, entry)
    return { job, answer: Deferred.await(answered) }
  }

  return submit
}

const unanswered = (requests: ReadonlyArray<unknown>) =>
  new Error(`a mutation has not answered each of its ${requests.length} requests`)

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
