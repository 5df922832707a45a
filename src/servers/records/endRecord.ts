import { Clock, Effect } from "effect"
import { auditRecord } from "../../domain/AuditedRequest.ts"
import { auditId } from "../../domain/auditId.ts"
import { hasExpired, type ServerRecord } from "../../domain/Server.ts"
import { AuditRepo } from "../../store/repos/AuditRepo.ts"
import { CrashRepo } from "../../store/repos/CrashRepo.ts"
import { DeletedServerRepo } from "../../store/repos/DeletedServerRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { BY_CALLER, EXPIRED, notSaved } from "./transitions.ts"

/**
 * Deletes a record, as part of a write that also stores why. If no caller has requested the deletion, the audit log has an
 * entry of the service.
 */
export const makeEndRecord = Effect.gen(function* () {
  const audit = yield* AuditRepo
  const crashes = yield* CrashRepo
  const deleted = yield* DeletedServerRepo
  const servers = yield* ServerRepo

  /** Completes the reason of a transition by what else the database has of the server. */
  const reasonOf = Effect.fnUntraced(function* (record: ServerRecord, reason: string, now: number) {
    if (reason === BY_CALLER || reason === EXPIRED) return reason
    // A report may be faster than the write that ends a requested removal.
    if (yield* servers.isRemoving(record.id)) return hasExpired(record, now) ? EXPIRED : BY_CALLER
    // A server that is not saved crashes once. It may have been saved before its last change.
    const since = record.redefinition?.defined_at ?? 0
    const [crash] = (yield* crashes.find({ server_id: record.id, since, limit: 1 })) ?? []
    return crash === undefined ? reason : notSaved(`crashed: ${crash.reason}`)
  })

  return Effect.fnUntraced(function* (record: ServerRecord, given: string) {
    const { id, name } = record
    const now = yield* Clock.currentTimeMillis
    const reason = yield* reasonOf(record, given, now)
    yield* crashes.keepFacts(id, record)
    yield* deleted.add(record, { deleted_at: now, reason })
    if (reason !== BY_CALLER) {
      yield* audit.put([
        auditRecord({
          id: auditId(now),
          at: new Date(now).toISOString(),
          actor: { key_id: null, name: "service", scope: null },
          client: null,
          request_id: null,
          action: "server.delete",
          object: { kind: "server", id, ...(name === undefined ? {} : { name }) },
          changes: [],
          result: { status: 200 },
          reason
        })
      ])
    }
    yield* servers.remove(id)
  })
})
