import { Clock, Effect, Option } from "effect"
import { CurrentAudit } from "../../../contract/domain/AuditedRequest.ts"
import { InvalidRequest, NotFound } from "../../../contract/domain/errors.ts"
import type { ServerId } from "../../../contract/domain/Id.ts"
import { pendingInstall } from "../../../contract/domain/InstallState.ts"
import { MAX_LABELS, mergeLabels, type ServerPatch } from "../../../contract/domain/Labels.ts"
import { isUnderway } from "../../../contract/domain/Migration.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import { problemAfter } from "../../../contract/domain/Problem.ts"
import { hasExpired, type ServerRecord } from "../../../contract/domain/Server.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import type { ServerFields } from "../../store/repos/serverFields.ts"
import { Store, Transaction } from "../../store/Store.ts"
import { makeMigrationRecords } from "./migrationRecords.ts"
import { isBeingDeleted, isMoving, notOffline } from "./power.ts"
import type { RecordChanges } from "./recordChanges.ts"
import { BY_CALLER, EXPIRED, isFinished, onInstallRefused, problems } from "./transitions.ts"

export const settingsOf = Effect.fnUntraced(function* (
  record: ServerRecord,
  { labels, ...same }: ServerPatch
): Effect.fn.Return<ServerFields, InvalidRequest> {
  if (labels === undefined) return same
  const merged = mergeLabels(record.labels, labels)
  if (Object.keys(merged).length > MAX_LABELS) {
    return yield* new InvalidRequest({
      detail: `body field labels: the server would have ${Object.keys(merged).length} labels, at most ${MAX_LABELS} are allowed`
    })
  }
  return { ...same, labels: merged }
})

type Refusal = Parameters<typeof problemAfter>[1]

export const makeRequestedChanges = Effect.fnUntraced(function* ({ carryOut, change }: RecordChanges) {
  const { write } = yield* Store
  const servers = yield* ServerRepo
  const migrations = yield* MigrationRepo
  const migrationRecords = yield* makeMigrationRecords

  const refuseInstall = Effect.fn("ServerLifecycle.refuseInstall")(function* (id: ServerId, reason: string) {
    const finished_at = yield* nowText
    const steps = [{ name: "instance", started_at: finished_at, finished_at }] as const
    const failed = { phase: "failed", finished_at, failure_reason: reason, steps } as const
    yield* Effect.logWarning(`the server cannot be installed: ${reason}`).pipe(
      Effect.annotateLogs({ server_id: id })
    )
    yield* write(change(id, (record) => (isFinished(record.install) ? {} : onInstallRefused(record, failed))))
  })

  const deferStart = Effect.fnUntraced(function* (id: ServerId) {
    const record = Option.getOrUndefined(yield* servers.lock(id))
    if (record === undefined) return yield* NotFound.server(id)
    if (record.status !== "installing") return false
    if (yield* servers.isRemoving(id)) return yield* isBeingDeleted(id)
    yield* migrationRecords.setStartPending(record, true)
    return true
  })

  const forgetStart = Effect.fnUntraced(function* (id: ServerId, because?: Refusal) {
    const now = yield* nowText
    const changed = yield* change(id, (record) => ({
      ...(record.start_pending ? { clearsStart: true } : {}),
      ...(because === undefined ? {} : problems(record, problemAfter(record.problem, because, now)))
    }))
    const migration = Option.getOrUndefined(yield* migrations.find(id))
    if (changed !== undefined && isUnderway(migration) && migration.was_up !== false) {
      yield* migrationRecords.save(changed.record, { ...migration, was_up: false })
    }
  })

  const stopAway = Effect.fnUntraced(function* (id: ServerId, stopped_by: string) {
    const record = Option.getOrUndefined(yield* servers.lock(id))
    if (record === undefined) return yield* NotFound.server(id)
    if (!record.definition.save || isUnderway(Option.getOrUndefined(yield* migrations.find(id)))) return false
    if (yield* servers.isRemoving(id)) return yield* isBeingDeleted(id)
    yield* carryOut(record, {
      run: { ...record.run, stopped_by, undelivered: true },
      ...(record.start_pending ? { clearsStart: true } : {})
    })
    return true
  })

  const reinstall = Effect.fnUntraced(function* (id: ServerId) {
    const record = Option.getOrUndefined(yield* servers.lock(id))
    if (record === undefined) return yield* NotFound.server(id)
    if (record.status !== "offline") return yield* notOffline(record)
    if (isUnderway(Option.getOrUndefined(yield* migrations.find(id)))) return yield* isMoving(id)
    yield* carryOut(record, { install: pendingInstall, status: "installing", ...problems(record, null) })
    return record
  })

  const undoReinstall = ({ id, install, status }: ServerRecord) =>
    change(id, (record) =>
      record.install.phase === "pending"
        ? { install, ...(record.status === "installing" ? { status } : {}) }
        : {}
    )

  const beginRemoval = Effect.fnUntraced(function* (
    id: ServerId,
    onlyIf: (record: ServerRecord) => boolean = () => true
  ) {
    const record = Option.filter(yield* servers.lock(id), onlyIf)
    if (Option.isSome(record)) yield* servers.setRemoving(id, true)
    return record
  })

  const patch = Effect.fnUntraced(function* <E>(
    id: ServerId,
    change: ServerPatch,
    check?: (record: ServerRecord) => Effect.Effect<void, E>
  ) {
    const record = Option.getOrUndefined(yield* servers.lock(id))
    if (record === undefined) return yield* NotFound.server(id)
    if (check !== undefined) yield* check(record)
    if (yield* servers.isRemoving(id)) return yield* isBeingDeleted(id)
    yield* servers.set(id, yield* settingsOf(record, change))
    const { append } = yield* Transaction
    yield* append({ topic: "server:changed", server_id: record.id, payload: null }, record)
  })

  const announceExpiry = Effect.fnUntraced(function* (record: ServerRecord) {
    const { expires_at, id } = record
    if (expires_at === undefined || !(yield* servers.announceExpiry(id, expires_at))) return
    const { append } = yield* Transaction
    yield* append({ topic: "server:expiring", server_id: id, payload: expires_at }, record)
  })

  const remove = Effect.fnUntraced(function* (id: ServerId, from?: string) {
    const requested = (yield* CurrentAudit) !== undefined
    const now = yield* Clock.currentTimeMillis
    const by = (record: ServerRecord) => ({
      destroys: !requested && hasExpired(record, now) ? EXPIRED : BY_CALLER
    })
    return (yield* write(change(id, by, from))) !== undefined
  })

  return {
    announceExpiry: (record: ServerRecord) => write(announceExpiry(record)),
    refuseInstall,
    deferStart: (id: ServerId) => write(deferStart(id)),
    forgetStart: (id: ServerId, because?: Refusal) => write(forgetStart(id, because)),
    stopAway: (id: ServerId, by: string) => write(stopAway(id, by)),
    stopDelivered: (id: ServerId) =>
      Effect.asVoid(
        write(
          change(id, ({ run }) => {
            if (run?.undelivered !== true) return {}
            const { undelivered: _, ...rest } = run
            return { run: rest }
          })
        )
      ),
    reinstall: (id: ServerId) => write(reinstall(id)),
    undoReinstall: (before: ServerRecord) => Effect.asVoid(write(undoReinstall(before))),
    beginRemoval: (id: ServerId, onlyIf?: (record: ServerRecord) => boolean) =>
      write(beginRemoval(id, onlyIf)),
    patch: <E>(id: ServerId, change: ServerPatch, check?: (record: ServerRecord) => Effect.Effect<void, E>) =>
      write(patch(id, change, check)),
    giveUpRemoval: (id: ServerId) => write(servers.setRemoving(id, false)),
    remove
  }
})
