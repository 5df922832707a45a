import { Clock, Context, Duration, Effect, Latch, Layer, Metric, Queue, Schedule } from "effect"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import {
  AuditedRequest,
  type AuditRecord,
  auditRecord,
  CurrentAudit
} from "../../contract/domain/AuditedRequest.ts"
import { auditId } from "../../contract/domain/idBytes.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { auditLost } from "../../shared/observability/metrics.ts"
import { filled, pageAfter, pageResponse } from "../http/requestUrl.ts"
import { type AuditQuery, AuditRepo } from "../store/repos/AuditRepo.ts"
import { Store } from "../store/Store.ts"

/** Requests without a change of a key in a minute that have an entry each. */
export const SINGLE_ENTRIES = 100

const MINUTE = 60_000

interface Minute {
  readonly endsAt: number
  singles: number
  /** By action and status: one entry for all further requests. */
  readonly shared: Map<string, AuditRecord>
}

/** Beyond {@link SINGLE_ENTRIES} in a minute, requests of a key that change nothing share an entry. */
export const makeSharedEntries = () => {
  const byKey = new Map<string, Minute>()

  const share = (shared: Map<string, AuditRecord>, record: AuditRecord) => {
    const { paths: _paths, ...entry } = record.entry
    const name = `${entry.action} ${entry.result.status}`
    const first = shared.get(name)?.entry
    const { id: _, name: __, ...object } = entry.object
    shared.set(
      name,
      auditRecord({
        ...(first ?? { ...entry, changes: [], object: { ...object, id: null } }),
        repeated: (first?.repeated ?? 0) + 1
      })
    )
  }

  return {
    /** Returns the entry if the request has its own. */
    add: (record: AuditRecord, now: number): AuditRecord | undefined => {
      const key = record.entry.actor.key_id ?? ""
      const minute = byKey.get(key) ?? { endsAt: now + MINUTE, singles: 0, shared: new Map() }
      byKey.set(key, minute)
      minute.singles += 1
      if (minute.singles <= SINGLE_ENTRIES) return record
      share(minute.shared, record)
      return undefined
    },
    /** Returns the shared entries of the minutes that are over. */
    take: (now: number): ReadonlyArray<AuditRecord> => {
      const over = [...byKey].filter(([, { endsAt }]) => now >= endsAt)
      for (const [key] of over) byKey.delete(key)
      return over.flatMap(([, { shared }]) => [...shared.values()])
    },
    takeAll: (): ReadonlyArray<AuditRecord> => {
      const all = [...byKey.values()].flatMap(({ shared }) => [...shared.values()])
      byKey.clear()
      return all
    }
  } as const
}

const MOST_WAITING = 10_000

const BATCH = 500

/** The audit log (spec 6.6). */
export class AuditLog extends Context.Service<AuditLog>()("muster/audit/AuditLog", {
  make: Effect.gen(function* () {
    const store = yield* Store
    const repo = yield* AuditRepo
    const queue = yield* Queue.unbounded<AuditRecord>()
    const idle = yield* Latch.make(true)
    const shared = makeSharedEntries()
    let waiting = 0

    const write = store.together((records: ReadonlyArray<AuditRecord>) =>
      Effect.as(repo.put(records), records)
    )
    const writeAll = (records: ReadonlyArray<AuditRecord>) => store.write(repo.put(records))

    const enqueue = (record: AuditRecord) =>
      Effect.suspend(() => {
        if (waiting >= MOST_WAITING) return Metric.update(auditLost, 1)
        waiting += 1
        idle.closeUnsafe()
        return Effect.asVoid(Queue.offer(queue, record))
      })

    const flush = Effect.gen(function* () {
      const records = yield* Queue.takeBetween(queue, 1, BATCH)
      yield* writeAll(records).pipe(
        Effect.tapError((error) =>
          Effect.logWarning(`audit entries wait for the database: ${error.detail}`).pipe(
            Effect.annotateLogs({ entries: waiting })
          )
        ),
        Effect.retry(Schedule.min([Schedule.exponential("1 second"), Schedule.spaced("1 minute")]))
      )
      waiting -= records.length
      if (waiting === 0) yield* idle.open
    })
    yield* flush.pipe(Effect.forever, Effect.forkScoped)

    const settle = Effect.gen(function* () {
      for (const record of shared.take(yield* Clock.currentTimeMillis)) yield* enqueue(record)
    })
    yield* settle.pipe(Effect.delay("5 seconds"), Effect.repeat(Schedule.forever), Effect.forkScoped)

    const drained = Effect.timeoutOption(idle.await, Duration.seconds(1))
    // The store is still open: it ends after this service.
    yield* Effect.addFinalizer(() =>
      Effect.gen(function* () {
        for (const record of shared.takeAll()) yield* enqueue(record)
        yield* drained
      })
    )

    const recordPending = Effect.fn("AuditLog.record")(function* (
      request: AuditedRequest,
      pending: AuditRecord
    ) {
      const isSuccess = pending.entry.result.status < 400 && !request.changesNothing
      if (isSuccess || request.isActing || request.isCommitted) {
        // This write is the entry itself, so it must not carry the entry of a success.
        const alone = Effect.provideService(write(pending), CurrentAudit, undefined)
        return yield* Effect.matchEffect(alone, {
          onFailure: () => enqueue(pending),
          onSuccess: () => Effect.sync(() => request.committed(pending))
        })
      }
      const single = shared.add(pending, yield* Clock.currentTimeMillis)
      if (single !== undefined) yield* enqueue(single)
    }, Effect.uninterruptible)

    const record = (request: AuditedRequest, status: number) =>
      Effect.suspend(() => {
        const pending = request.pending(request.begun ?? status)
        return pending === undefined ? Effect.void : recordPending(request, pending)
      })

    return {
      /**
       * Records the outcome of a request. Returns once the entry of a success, or of a request that has called a
       * node, is durable; others are written in batches, and all wait for the database.
       */
      record,
      /** Returns entries, newest first, with all that this replica has recorded. */
      find: Effect.fn("AuditLog.find")(function* (query: AuditQuery) {
        yield* drained
        return yield* store.read(repo.find(query))
      })
    }
  })
}) {
  static readonly layer = Layer.effect(AuditLog, AuditLog.make)
}

/** Changes keys from a command beside the service: the write adds an entry of the actor `cli`, with the status of the API. */
export const auditedCommand =
  (action: "key.create" | "key.revoke", id?: string) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.flatMap(Clock.currentTimeMillis, (now) =>
      Effect.provideService(
        self,
        CurrentAudit,
        new AuditedRequest({
          begin: { id: auditId(now), at: new Date(now).toISOString(), client: null, request_id: null },
          action,
          kind: "key",
          id,
          success: action === "key.create" ? 201 : 200,
          actor: { key_id: null, name: "cli", scope: null }
        })
      )
    )

const PAGE = 100

const resultOf = (result: string): AuditQuery["result"] =>
  result === "" ? undefined : result === "ok" || result === "refused" ? result : Number(result)

/** `GET /api/audit` (spec 6.6). */
export const AuditHandlers = handlersOf(
  ApplicationApi,
  "audit",
  Effect.fn(function* (handlers) {
    const log = yield* AuditLog
    return handlers.handleAll({
      list: Effect.fnUntraced(function* ({ query, request }) {
        const { action, actor, object, since = "", until = "" } = query
        const { limit, ...page } = pageAfter(query, PAGE)
        const result = resultOf(query.result ?? "")
        const entries = yield* log.find({
          ...page,
          // One more: whether there is a next page.
          limit: limit + 1,
          ...(since === "" ? {} : { since: Date.parse(since) }),
          ...(until === "" ? {} : { until: Date.parse(until) }),
          ...filled({ actor, action, object }),
          ...(result === undefined ? {} : { result })
        })
        const shown = entries.slice(0, limit)
        return pageResponse(request.url, shown, entries.length > limit ? shown.at(-1)?.id : undefined)
      })
    })
  })
)
