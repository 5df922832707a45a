import { Array as Arr, type Cause, Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import type { AuditedRequest, AuditRecord } from "../../../contract/domain/AuditedRequest.ts"
import type { JournalEntry } from "../../../contract/domain/Journal.ts"
import { elapsedMillis } from "../../../shared/work/elapsed.ts"
import { journalTable } from "../journal/journalTable.ts"
import { auditTable } from "../repos/AuditRepo.ts"
import type { Backend, CommitToken } from "../sql/Backend.ts"
import { isRefused } from "../sql/sqlErrors.ts"
import type { Job, Unit } from "./job.ts"

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
  | {
      readonly _tag: "lost"
      readonly jobs: ReadonlyArray<Job>
      readonly cause: Cause.Cause<SqlError.SqlError>
    }
  /** The COMMIT was not answered. */
  | ({ readonly _tag: "unknown"; readonly cause: Cause.Cause<SqlError.SqlError> } & Sealed)

/** `latecomers` returns jobs that arrived while the transaction waited for others. */
export const makeWriteTransaction = (options: {
  readonly sql: SqlClient.SqlClient
  readonly backend: Backend["Service"]
}) => {
  const { backend, sql } = options
  const journal = journalTable(sql)
  const audit = auditTable(sql)

  return (
    first: ReadonlyArray<Job>,
    latecomers: (jobs: ReadonlyArray<Job>) => Effect.Effect<ReadonlyArray<Job>>
  ): Effect.Effect<TransactionResult> =>
    Effect.suspend(() => {
      let jobs = first
      let sealed: Sealed | undefined
      /** The time at which the transaction became the only writer. */
      let began: number | undefined
      const attempted: Array<Unit> = []

      const isLate = Effect.map(
        elapsedMillis,
        (now) => began !== undefined && now - began > backend.transactionMillis
      )
      const attempt = Effect.fnUntraced(function* (some: ReadonlyArray<Job>) {
        for (const unit of unitsOf(some)) {
          if (attempted.length > 0 && (yield* isLate)) return
          attempted.push(unit)
          yield* unit.attempt
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
        const [[token, newest]] = yield* Effect.all([turn, attempt(first)], { concurrency: "unbounded" })
        const late = yield* latecomers(first)
        jobs = [...first, ...late]
        yield* attempt(late)
        const done = new Set(attempted.flatMap((unit) => unit.jobs))
        const changes = attempted.flatMap((unit) => unit.changes())
        const entries = yield* journal.numbered(changes, newest)
        const audits = [...new Set(attempted.flatMap((unit) => unit.audited()))].flatMap((request) => {
          const pending = request.carried()
          return pending === undefined ? [] : [[request, pending] as const]
        })
        if (audits.length > 0) yield* audit.put(audits.map(([, pending]) => pending))
        sealed = { jobs: [...done], left: jobs.filter((job) => !done.has(job)), entries, audits, token }
        yield* journal.append(entries, backend.notifyClause)
        return sealed
      })
      return Effect.matchCause(sql.withTransaction(body), {
        onSuccess: (committed): TransactionResult => ({ _tag: "committed", ...committed }),
        onFailure: (cause): TransactionResult =>
          sealed === undefined || isRefused(cause)
            ? { _tag: "lost", jobs, cause }
            : { _tag: "unknown", ...sealed, cause }
      })
    })
}

/** In the order of each kind's first job. */
const unitsOf = (jobs: ReadonlyArray<Job>): ReadonlyArray<Unit> =>
  Array.from(Map.groupBy(jobs, ({ kind }) => kind)).flatMap(([kind, same]) =>
    Arr.chunksOf(same, MAX_TOGETHER).map((some) => kind.together(some))
  )
