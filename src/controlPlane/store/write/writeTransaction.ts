import { Array as Arr, type Cause, Effect, Exit } from "effect"
import type { SqlClient, SqlError } from "effect/sql"
import { type AuditedRequest, type AuditRecord, auditedBy } from "../../../contract/domain/AuditedRequest.ts"
import type { JournalEntry } from "../../../contract/domain/Journal.ts"
import { elapsedMillis } from "../../../shared/work/elapsed.ts"
import { journalTable, type PendingChange } from "../journal/journalTable.ts"
import { auditTable } from "../repos/AuditRepo.ts"
import type { Backend, CommitToken } from "../sql/Backend.ts"
import { isRefused } from "../sql/sqlErrors.ts"
import { carryOut, type Job } from "./job.ts"

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
        if (audits.length > 0) yield* audit.put(audits.map(([, pending]) => pending))
        sealed = { jobs: [...done], left: jobs.filter((job) => !done.has(job)), entries, audits, token }
        yield* journal.append(entries, backend.notifyClause)
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
