import { constants } from "node:os"
import { Clock, Effect } from "effect"
import { auditRecord } from "../../../contract/domain/AuditedRequest.ts"
import type { CrashDetails, CrashRecord } from "../../../contract/domain/CrashRecord.ts"
import { DatabaseFull, NotFound, Unavailable } from "../../../contract/domain/errors.ts"
import { type ServerId, serverId } from "../../../contract/domain/Id.ts"
import { auditId, idBytes } from "../../../contract/domain/idBytes.ts"
import { hasExpired, type ServerRecord } from "../../../contract/domain/Server.ts"
import type { Crash } from "../../../contract/domain/ServerEvent.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { mayUseReserve } from "../../store/disk/DatabaseDisk.ts"
import { AuditRepo } from "../../store/repos/AuditRepo.ts"
import { CrashRepo } from "../../store/repos/CrashRepo.ts"
import { DeletedServerRepo, KeptServerRepo } from "../../store/repos/DeletedServerRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { makeNodeErrors, makeRefuseBusy, type NodeCallError } from "./nodeCalls.ts"
import { type RemoveOptions, ServerLifecycle } from "./ServerLifecycle.ts"
import { ServerLocks } from "./ServersOptions.ts"
import { BY_CALLER, EXPIRED, notSaved } from "./transitions.ts"

const continuesLater = Effect.mapError((error: Unavailable) =>
  error instanceof DatabaseFull ? DatabaseFull.removalBegun() : Unavailable.removalBegun()
)

/** Adds to the error of an unavailable node how to delete the record anyway. */
const mayBeForced = Effect.mapError((error: NodeCallError) =>
  error instanceof Unavailable
    ? new Unavailable({
        detail: error.detail,
        hint: `${error.hint.replace(/\.?$/, ".")} Or send force=true: the record is deleted now, the files once the node is back.`
      })
    : error
)

/**
 * Removes a server on its node, which may keep the files (spec 3.19), then its record and ports in one write. The
 * {@link Provisioner} continues a recorded removal after a crash. `force` deletes the record despite a failed call.
 */
export const makeRemove = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle
  const locks = yield* ServerLocks
  const { failWith } = yield* makeNodeErrors
  const refuseBusy = yield* makeRefuseBusy

  const remove = Effect.fnUntraced(function* (id: ServerId, options: RemoveOptions) {
    if ((yield* index.lookUp(id)) === undefined) return yield* Effect.fail(NotFound.server(id))
    if (!options.force) yield* refuseBusy(id)
    const begun = yield* lifecycle.beginRemoval(id, options)
    if (begun === undefined) return yield* Effect.fail(NotFound.server(id))
    const { keeps, record } = begun
    const from = yield* daemons.of(record.node_id).pipe(
      Effect.flatMap((daemon) => daemon.remove(id, keeps ? { kept: true } : {})),
      Effect.as(record.node_id),
      Effect.catch((error) =>
        options.force
          ? Effect.succeed(undefined)
          : Effect.andThen(continuesLater(lifecycle.giveUpRemoval(id)), mayBeForced(failWith(record, error)))
      )
    )
    yield* continuesLater(lifecycle.remove(id, from, keeps))
  }, Effect.uninterruptible)

  return Effect.fn("ServerManager.remove")((id: ServerId, options: RemoveOptions) =>
    locks.withLock(id)(mayUseReserve(remove(id, options)))
  )
})

/** The exit code of a process that signal n ended is 128 + n. */
const SIGNALED = 128

const signalOf = (exit_code: number): string | undefined =>
  Object.entries(constants.signals).find(([, number]) => number === exit_code - SIGNALED)?.[0]

/** Returns the record of a crash. Its id has the form of a server's. */
export const crashRecord = (
  { blueprint_id, definition, id: server_id, name, node_id }: ServerRecord,
  { exit_code, reason, timestamp }: Crash,
  { lines, restart, started_at }: CrashDetails = { lines: [] }
): CrashRecord => {
  const signal = signalOf(exit_code)
  return {
    id: serverId(idBytes(16)),
    server_id,
    ...(typeof name === "string" ? { server_name: name } : {}),
    blueprint_id,
    node_id,
    version: definition.version,
    reason,
    exit_code,
    ...(signal === undefined ? {} : { signal }),
    out_of_memory: reason === "out of memory",
    started_at: started_at ?? null,
    crashed_at: timestamp,
    uptime_seconds:
      started_at === undefined
        ? null
        : Math.max(0, Math.round(Date.parse(timestamp) - Date.parse(started_at)) / 1000),
    restart: restart ?? null,
    lines
  }
}

/** Deletes a record in a write that stores why. Without a caller, the audit log has an entry of the service. */
export const makeEndRecord = Effect.gen(function* () {
  const audit = yield* AuditRepo
  const crashes = yield* CrashRepo
  const deleted = yield* DeletedServerRepo
  const kept = yield* KeptServerRepo
  const servers = yield* ServerRepo

  const reasonOf = Effect.fnUntraced(function* (record: ServerRecord, reason: string, now: number) {
    if (reason === BY_CALLER || reason === EXPIRED) return reason
    // A report may be faster than the write that ends a requested removal.
    if (yield* servers.isRemoving(record.id)) return hasExpired(record, now) ? EXPIRED : BY_CALLER
    // An unsaved server crashes once, but may have been saved before its last change.
    const since = record.redefinition?.defined_at ?? 0
    const [crash] = (yield* crashes.find({ server_id: record.id, since, limit: 1 })) ?? []
    return crash === undefined ? reason : notSaved(`crashed: ${crash.reason}`)
  })

  return Effect.fnUntraced(function* (record: ServerRecord, given: string, keeps = false) {
    const { id, name } = record
    const now = yield* Clock.currentTimeMillis
    const reason = yield* reasonOf(record, given, now)
    yield* crashes.keepFacts(id, record)
    yield* deleted.add(record, { deleted_at: now, reason })
    if (keeps) yield* kept.add(record, now)
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
