import { Effect } from "effect"
import { archiveOf, type BackupRecord, type BackupTask, RestoreWork } from "../../contract/domain/Backup.ts"
import type { TargetAccess } from "../../contract/domain/BackupTarget.ts"
import { Unavailable } from "../../contract/domain/errors.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import type { OperationRecord } from "../../contract/domain/Operation.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import type { BackupTaskRequest, NodeBackups, PlacedRestore } from "../../contract/nodeApi/NodeBackups.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import {
  asked,
  LOOK_INTERVAL,
  makeReadTask,
  OperationFailed,
  type OperationRunner,
  type RunnerError,
  untilLook
} from "../operations/OperationRunners.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { ServerManager } from "../servers/ServerManager.ts"
import { BackupRepo } from "../store/repos/BackupRepo.ts"
import { Store } from "../store/Store.ts"
import { accessIn, BackupTargets } from "./BackupTargets.ts"
import type { CreateBackup } from "./runners.ts"

const readWork = makeReadTask(RestoreWork)

/** Attempts to read the archive from a node that is away, and the time between two of them. */
const MOST_ATTEMPTS = 5
const PAUSE = "5 seconds"

/** Returns what a restore has left out that was cancelled once its files were in place. */
const leftOf = ({ reason }: PlacedRestore, isStarted: boolean) => {
  const start = isStarted ? undefined : "the server was not started: the operation was cancelled; start it"
  return cleanText([start, reason].filter((text) => text !== undefined).join("; ")) || null
}

/** The caller may have stopped the server for the restore. */
const notStarted = (reason: string) =>
  new OperationFailed({ reason: `${reason}; the server was not started: start it, or restore it again` })

/** Returns a function that starts a server as a caller does (spec 3.9). One that is up was started by an earlier leader. */
export const makeStart = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const servers = yield* ServerManager
  return ({ id, node_id }: ServerRecord) =>
    Effect.catch(servers.power(id, "start"), (error): Effect.Effect<void, RunnerError> => {
      if (isUp(index.get(id)?.status ?? "offline")) return Effect.void
      // Without its node, the operation waits as long as for any other call.
      if (error._tag === "Unavailable") return Effect.andThen(daemons.of(node_id), Effect.fail(error))
      return Effect.fail(new OperationFailed({ reason: error.detail }))
    })
})

const deleted = (id: string) => new OperationFailed({ reason: `the backup was deleted: ${id}` })

/** The task of the node of the server. It reads the archive itself if it has the backup. */
const taskOf = (
  backup: BackupRecord,
  access: TargetAccess,
  server: ServerRecord,
  { part }: RestoreWork
): BackupTask => ({
  kind: "restore",
  backup_id: backup.id,
  archive: archiveOf(backup),
  arrives: access.type === "node" && backup.node_id !== server.node_id,
  ...(part === undefined ? {} : { part })
})

/** Returns the runner of `backup.restore`: the backup of the present files first, then the restore, then a start (spec 12.5). */
export const makeRestoreRunner = Effect.fnUntraced(function* (create: CreateBackup) {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const repo = yield* BackupRepo
  const store = yield* Store
  const targets = yield* BackupTargets
  const servers = yield* ServerManager
  const start = yield* makeStart

  /** Gives the server the definition of the backup; the leader tries again until the node has it. */
  const define = Effect.fnUntraced(function* (
    backup: BackupRecord,
    { id }: ServerRecord,
    target: TargetAccess
  ): Effect.fn.Return<void, RunnerError> {
    const node = yield* daemons.of(targets.nodeFor(backup, target))
    const stored = { id: backup.id, target, archive: archiveOf(backup) }
    const definition = yield* asked(node.backups.definition(stored))
    yield* Effect.catch(
      servers.give(id, { definition, overrides: backup.overrides }),
      (error): Effect.Effect<never, RunnerError> =>
        error._tag === "Unavailable"
          ? Effect.fail(error)
          : Effect.fail(new OperationFailed({ reason: error.detail }))
    )
    const now = index.get(id)
    if (now?.redefinition?.used !== undefined || now?.install.phase === "installing")
      return yield* new Unavailable({ detail: "the server gets the definition of the backup" })
  })

  /** A server that was made for a backup is installed before; the leader tries again until then. */
  const awaitInstalled = Effect.fnUntraced(function* ({ id }: ServerRecord) {
    const install = index.get(id)?.install
    if (install?.phase === "failed")
      return yield* new OperationFailed({
        reason: "the server cannot be installed; reinstall it, and restore the backup again"
      })
    if (install?.phase !== "ready") return yield* new Unavailable({ detail: "the server is being installed" })
  })

  const backupOf = Effect.fnUntraced(function* (id: string) {
    const backup = yield* store.read(repo.find(id))
    return backup ?? (yield* deleted(id))
  })

  const callOf = Effect.fnUntraced(function* (operation: OperationRecord, server: ServerRecord) {
    const work = yield* readWork(operation)
    const backup = yield* backupOf(work.backup_id)
    const target = yield* accessIn(targets, backup)
    const task = taskOf(backup, target, server, work)
    const request: BackupTaskRequest = { operation_id: operation.id, task, target }
    return { work, backup, request }
  })

  /** Streams the archive from the node that has it to the one that waits for it. */
  const send = Effect.fnUntraced(function* (
    backup: BackupRecord,
    to: NodeBackups,
    server: ServerRecord,
    request: BackupTaskRequest
  ) {
    const from = yield* daemons.of(backup.node_id)
    const stored = { id: backup.id, target: request.target, archive: archiveOf(backup) }
    const bytes = yield* asked(from.backups.archive(stored))
    yield* asked(to.receive(server.id, request, bytes))
  }, Effect.scoped)

  const restore = Effect.fnUntraced(function* (
    backup: BackupRecord,
    server: ServerRecord,
    request: BackupTaskRequest,
    report: Parameters<OperationRunner["run"]>[2]
  ): Effect.fn.Return<string | undefined, RunnerError> {
    const { backups } = yield* daemons.of(server.node_id)
    const look = Effect.tap(asked(backups.work(server.id, request)), ({ progress }) => report(progress))
    const watched = Effect.forever(Effect.andThen(Effect.sleep(LOOK_INTERVAL), look))
    for (let attempt = 1, looks = 0; ; ) {
      const { reason, state } = yield* look
      if (state === "done") return reason
      if (state === "failed")
        return yield* new OperationFailed({ reason: reason ?? "the node gives no reason" })
      if (state === "running") {
        yield* untilLook(looks++)
        continue
      }
      const sent = Effect.raceFirst(send(backup, backups, server, request), watched)
      const isSent = yield* Effect.as(sent, true).pipe(
        Effect.catchTag("NodeUnreachable", (error) =>
          error.node_id === backup.node_id && error.node_id !== server.node_id
            ? Effect.succeed(false)
            : Effect.fail(error)
        )
      )
      if (isSent) continue
      if (attempt >= MOST_ATTEMPTS)
        return yield* new OperationFailed({
          reason: `node ${backup.node_id}, which has the backup, is not connected`
        })
      attempt += 1
      yield* Effect.sleep(PAUSE)
    }
  })

  const runner: OperationRunner = {
    run: Effect.fnUntraced(function* (operation, server, report): Effect.fn.Return<
      string | undefined,
      RunnerError
    > {
      const { backup, request, work } = yield* callOf(operation, server)
      // It was deleted while the operation was stored, which keeps it from then on.
      if (backup.state !== "done") return yield* deleted(backup.id)
      yield* awaitInstalled(server)
      const restored = Effect.gen(function* () {
        if (work.safety !== null)
          yield* create.run({ operation_id: operation.id, task: work.safety }, server, report)
        if (work.defines === true) yield* define(backup, server, request.target)
        return yield* restore(backup, server, request, report)
      })
      if (!work.start) return yield* restored
      const left = yield* Effect.catchTag(restored, "OperationFailed", ({ reason }) =>
        Effect.fail(notStarted(reason))
      )
      yield* start(server)
      return left
    }),
    cancel: Effect.fnUntraced(function* (operation, server) {
      const { request, work } = yield* callOf(operation, server)
      if (work.safety !== null)
        yield* create.cancel({ operation_id: operation.id, task: work.safety }, server)
      const { backups } = yield* daemons.of(server.node_id)
      const placed = yield* asked(backups.cancel(server.id, request))
      if (placed === undefined) return undefined
      return leftOf(placed, !work.start || isUp(index.get(server.id)?.status ?? "offline"))
    })
  }
  return runner
})
