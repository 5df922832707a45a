import { Clock, Context, Effect, Layer } from "effect"
import { CurrentAudit } from "../../../contract/domain/AuditedRequest.ts"
import { isUnderway } from "../../../contract/domain/Drain.ts"
import { NotFound } from "../../../contract/domain/errors.ts"
import type { ServerId } from "../../../contract/domain/Id.ts"
import { pendingInstall } from "../../../contract/domain/InstallState.ts"
import type { ServerPatch } from "../../../contract/domain/Labels.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import { problemAfter } from "../../../contract/domain/Problem.ts"
import { hasExpired, type ServerRecord } from "../../../contract/domain/Server.ts"
import { KeepDeleted } from "../../store/repos/DeletedServerRepo.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { append, Store } from "../../store/Store.ts"
import { beingDeleted, moving, notOffline } from "./conflicts.ts"
import { makeMigrationRecords } from "./migrationRecords.ts"
import { makeRecordChanges, type RecordChanges } from "./recordChanges.ts"
import { makeRedefinitions, makeReplacePorts, settingsOf } from "./redefinitions.ts"
import { makeAbsences, makeReportedChanges } from "./reportedChanges.ts"
import { BY_CALLER, EXPIRED, isFinished, onInstallRefused, problems } from "./transitions.ts"

export interface RemoveOptions {
  readonly force: boolean
  /** Whether the files go at once, also those of a server that has run. */
  readonly purge?: boolean
  /** A condition on the stored record. If it does not hold, the removal fails with NotFound. */
  readonly onlyIf?: (record: ServerRecord) => boolean
}

type Refusal = Parameters<typeof problemAfter>[1]

/** The starts, stops and installations that callers and controllers ask for. */
const makeRequestedRuns = Effect.fnUntraced(function* ({ carryOut, change }: RecordChanges) {
  const { write } = yield* Store
  const servers = yield* ServerRepo
  const migrations = yield* MigrationRepo
  const migrationRecords = yield* makeMigrationRecords

  const recordOf = Effect.fnUntraced(function* (id: ServerId) {
    return (yield* servers.lock(id)) ?? (yield* NotFound.server(id))
  })
  const migrationOf = migrations.find

  const deferStart = Effect.fnUntraced(function* (id: ServerId) {
    const record = yield* recordOf(id)
    if (record.status !== "installing") return false
    if (yield* servers.isRemoving(id)) return yield* beingDeleted(id)
    yield* migrationRecords.setStartPending(record, true)
    return true
  })

  const forgetStart = Effect.fnUntraced(function* (id: ServerId, because?: Refusal) {
    const now = yield* nowText
    const changed = yield* change(id, (record) => ({
      ...(record.start_pending ? { clearsStart: true } : {}),
      ...(because === undefined ? {} : problems(record, problemAfter(record.problem, because, now)))
    }))
    const migration = yield* migrationOf(id)
    if (changed !== undefined && isUnderway(migration) && migration.was_up !== false) {
      yield* migrationRecords.save(changed.record, { ...migration, was_up: false })
    }
  })

  const stopAway = Effect.fnUntraced(function* (id: ServerId, stopped_by: string) {
    const record = yield* recordOf(id)
    if (!record.definition.save || isUnderway(yield* migrationOf(id))) return false
    if (yield* servers.isRemoving(id)) return yield* beingDeleted(id)
    yield* carryOut(record, {
      run: { ...record.run, stopped_by, undelivered: true },
      ...(record.start_pending ? { clearsStart: true } : {})
    })
    return true
  })

  const reinstall = Effect.fnUntraced(function* (id: ServerId) {
    const record = yield* recordOf(id)
    if (record.status !== "offline") return yield* notOffline(record)
    if (isUnderway(yield* migrationOf(id))) return yield* moving(id)
    yield* carryOut(record, { install: pendingInstall, status: "installing", ...problems(record, null) })
    return record
  })

  return {
    refuseInstall: Effect.fn("ServerLifecycle.refuseInstall")(function* (id: ServerId, reason: string) {
      const finished_at = yield* nowText
      const steps = [{ name: "instance", started_at: finished_at, finished_at }] as const
      const failed = { phase: "failed", finished_at, failure_reason: reason, steps } as const
      yield* Effect.logWarning(`the server cannot be installed: ${reason}`).pipe(
        Effect.annotateLogs({ server_id: id })
      )
      yield* write(
        change(id, (record) => (isFinished(record.install) ? {} : onInstallRefused(record, failed)))
      )
    }),
    /** Starts a server once installed; false unless it is installing. @error Conflict it is being deleted */
    deferStart: (id: ServerId) => write(deferStart(id)),
    /** Cancels a pending start, also after a migration. `because` is the node's reason, if it refused. */
    forgetStart: (id: ServerId, because?: Refusal) => write(forgetStart(id, because)),
    /** Records the stop of a saved server whose node is away. Returns false if it is unsaved or migrates. */
    stopAway: (id: ServerId, by: string) => write(stopAway(id, by)),
    /** Records that the node has such a stop, or that a start has cancelled it. */
    stopDelivered: Effect.fnUntraced(function* (id: ServerId) {
      yield* write(
        change(id, ({ run }) => {
          if (run?.undelivered !== true) return {}
          const { undelivered: _, ...rest } = run
          return { run: rest }
        })
      )
    }),
    /** Makes an installation pending; returns the record before. @error Conflict the server is not offline */
    reinstall: (id: ServerId) => write(reinstall(id)),
    /** Undoes {@link reinstall}, unless the node has reported an installation since. */
    undoReinstall: Effect.fnUntraced(function* ({ id, install, status }: ServerRecord) {
      yield* write(
        change(id, (record) => {
          if (record.install.phase !== "pending") return {}
          return { install, ...(record.status === "installing" ? { status } : {}) }
        })
      )
    })
  }
})

/** The changes of settings, and the deletion. */
const makeSettingsAndRemovals = Effect.fnUntraced(function* ({ change }: RecordChanges) {
  const { read, write } = yield* Store
  const keepDeleted = yield* KeepDeleted
  const migrations = yield* MigrationRepo
  const servers = yield* ServerRepo

  const patch = Effect.fnUntraced(function* <E>(
    id: ServerId,
    settings: ServerPatch,
    check?: (record: ServerRecord) => Effect.Effect<void, E>
  ) {
    const record = yield* servers.lock(id)
    if (record === undefined) return yield* NotFound.server(id)
    if (check !== undefined) yield* check(record)
    if (yield* servers.isRemoving(id)) return yield* beingDeleted(id)
    yield* servers.set(id, yield* settingsOf(record, settings))
    yield* append({ topic: "server:changed", server_id: id, payload: null }, record)
  })

  const announceExpiry = Effect.fnUntraced(function* (record: ServerRecord) {
    const { expires_at, id } = record
    if (expires_at === undefined || !(yield* servers.announceExpiry(id, expires_at))) return
    yield* append({ topic: "server:expiring", server_id: id, payload: expires_at }, record)
  })

  const mayBeKept = Effect.fnUntraced(function* ({ definition, id }: ServerRecord) {
    if (!definition.save || !(yield* servers.hasRun(id))) return false
    // The files of a server that arrives are not complete on its node.
    return (yield* migrations.find(id))?.phase !== "arriving"
  })

  const beginRemoval = Effect.fnUntraced(function* (
    id: ServerId,
    { onlyIf = () => true, purge = false }: Pick<RemoveOptions, "onlyIf" | "purge">
  ) {
    const record = yield* servers.lock(id)
    if (record === undefined || !onlyIf(record)) return undefined
    const keeps = !purge && keepDeleted > 0 && (yield* mayBeKept(record))
    yield* servers.setRemoving(id, true)
    yield* servers.setKeeps(id, keeps)
    return { record, keeps }
  })

  return {
    /**
     * Changes name, labels and expiry, unless the check of the present record fails.
     * @error Conflict       the server is being deleted
     * @error InvalidRequest too many labels
     */
    patch: <E = never>(
      id: ServerId,
      settings: ServerPatch,
      check?: (record: ServerRecord) => Effect.Effect<void, E>
    ) => write(patch(id, settings, check)),
    /** Publishes that a server expires soon, once for each expiry. */
    announceExpiry: (record: ServerRecord) => write(announceExpiry(record)),
    /**
     * Records that a removal begins, so that it continues after a crash. Returns the record, and whether its node keeps
     * the files; nothing if there is no such server.
     */
    beginRemoval: (id: ServerId, options: Pick<RemoveOptions, "onlyIf" | "purge">) =>
      write(beginRemoval(id, options)),
    /** Whether the removal that has begun keeps the files; nothing if another process has ended it. */
    keeps: (id: ServerId) => read(servers.keeps(id)),
    giveUpRemoval: (id: ServerId) => write(servers.setRemoving(id, false)),
    /**
     * Deletes the record; false if there is none. Its nodes other than `from` must delete the files.
     * @param known whether the node has kept the files; default: what the recorded removal says. Without one, nothing is deleted
     */
    remove: Effect.fnUntraced(function* (id: ServerId, from?: string, known?: boolean) {
      const requested = (yield* CurrentAudit) !== undefined
      const now = yield* Clock.currentTimeMillis
      const by = (keeps: boolean) => (record: ServerRecord) => ({
        destroys: !requested && hasExpired(record, now) ? EXPIRED : BY_CALLER,
        keeps
      })
      const removed = Effect.gen(function* () {
        const keeps = known ?? (yield* servers.keeps(id))
        return keeps === undefined ? undefined : yield* change(id, by(keeps), from)
      })
      return (yield* write(removed)) !== undefined
    })
  }
})

/**
 * The changes of a server's record after its creation, each one write with its journal entries. The deletion of a
 * record also makes its node delete the files.
 */
export class ServerLifecycle extends Context.Service<ServerLifecycle>()("muster/servers/ServerLifecycle", {
  make: Effect.gen(function* () {
    const records = yield* makeRecordChanges
    return {
      ...(yield* makeReportedChanges(records)),
      ...(yield* makeAbsences(records)),
      ...(yield* makeRequestedRuns(records)),
      ...(yield* makeSettingsAndRemovals(records)),
      ...(yield* makeRedefinitions(records)),
      replacePorts: yield* makeReplacePorts
    }
  })
}) {
  static readonly layer = Layer.effect(ServerLifecycle, ServerLifecycle.make)
}
