import { Effect, Layer } from "effect"
import { type BackupRecord, BackupTask, type BackupTaskState } from "../../contract/domain/Backup.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import type { OperationRecord } from "../../contract/domain/Operation.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import type { BackupTaskRequest, NodeBackups } from "../../contract/nodeApi/NodeBackups.ts"
import { BlueprintStore } from "../blueprints/BlueprintStore.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import {
  asked,
  makeReadTask,
  OperationFailed,
  type OperationRunner,
  OperationRunners,
  type RunnerError,
  untilLook
} from "../operations/OperationRunners.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { BackupRepo } from "../store/repos/BackupRepo.ts"
import { Store } from "../store/Store.ts"
import { accessIn, BackupTargets } from "./BackupTargets.ts"
import { makeDrillRunner } from "./drillRunner.ts"
import { makeRestoreRunner } from "./restoreRunner.ts"
import { surplus } from "./retention.ts"

const readTask = makeReadTask(BackupTask)

/** Follows a task on its node to its end, and returns its figures and reason. */
const follow = Effect.fnUntraced(function* (
  backups: NodeBackups,
  { id }: ServerRecord,
  request: BackupTaskRequest,
  report: Parameters<OperationRunner["run"]>[2],
  onState: (state: BackupTaskState) => Effect.Effect<unknown, RunnerError> = () => Effect.void
) {
  for (let looks = 0; ; looks++) {
    // A node that does not know the operation begins it: it was restarted meanwhile.
    const now = yield* asked(backups.work(id, request))
    const { figures, progress, reason, state } = now
    yield* onState(now)
    yield* report(progress)
    if (state === "failed")
      return yield* new OperationFailed({ reason: reason ?? "the node gives no reason" })
    if (state === "done") return { figures, reason: reason ?? null }
    yield* untilLook(looks)
  }
})

/** A task of an operation; the target is that of its backup. */
export type TaskCall = Omit<BackupTaskRequest, "target">

/** Makes a backup that is part of an operation. */
export interface CreateBackup {
  run(
    call: TaskCall,
    server: ServerRecord,
    report: Parameters<OperationRunner["run"]>[2]
  ): Effect.Effect<void, RunnerError>
  cancel(call: TaskCall, server: Pick<ServerRecord, "id" | "node_id">): Effect.Effect<void, RunnerError>
}

/** Registers the runners of backups: the nodes of their servers do the work (spec 12.4). */
export const BackupRunners = Layer.effectDiscard(
  Effect.gen(function* () {
    const blueprints = yield* BlueprintStore
    const daemons = yield* DaemonClient
    const index = yield* ServerIndex
    const repo = yield* BackupRepo
    const store = yield* Store
    const targets = yield* BackupTargets
    const { register } = yield* OperationRunners

    const backupOf = Effect.fnUntraced(function* ({ backup_id }: BackupTask) {
      const backup = yield* store.read(repo.find(backup_id))
      return backup ?? (yield* new OperationFailed({ reason: "the backup was deleted" }))
    })
    const taskCallOf = (operation: OperationRecord) =>
      Effect.map(readTask(operation), (task): TaskCall => ({ operation_id: operation.id, task }))
    const callOf = Effect.fnUntraced(function* (operation: OperationRecord) {
      const call = yield* taskCallOf(operation)
      const backup = yield* backupOf(call.task)
      return { backup, request: { ...call, target: yield* accessIn(targets, backup) } }
    })

    const create: CreateBackup = {
      run: Effect.fnUntraced(function* (call, server, report) {
        const backup = yield* backupOf(call.task)
        // The runner was called before, and the leader ended between the last two writes.
        if (backup.state === "done") return
        const request = { ...call, target: yield* accessIn(targets, backup) }
        const { backups } = yield* daemons.of(server.node_id)
        let shown: "quiescing" | "copying" | undefined
        const note = (state: NonNullable<typeof shown>) =>
          Effect.suspend(() => {
            if (state === shown) return Effect.void
            shown = state
            return Effect.asVoid(store.write(repo.underway(backup.id, state, server.node_id, server)))
          })
        const { task } = request
        yield* note(task.kind === "create" && task.quiesce !== undefined ? "quiescing" : "copying")
        const { figures, reason } = yield* follow(backups, server, request, report, ({ quiescing }) =>
          note(quiescing === true ? "quiescing" : "copying")
        )
        if (figures === undefined) return yield* new OperationFailed({ reason: "the node gives no figures" })
        const { keep } = yield* blueprints.backupRule(server.blueprint_id)
        const finished_at = yield* nowText
        const finish = Effect.gen(function* () {
          yield* repo.finish(backup.id, figures, { finished_at, reason }, server)
          // The rule does not count this backup, which a restore may have made first: no other one is surplus now.
          if (keep === undefined || backup.pinned || backup.expires_at !== null) return
          // The leader removes their files.
          for (const { id } of surplus(yield* repo.unreadOf(server.id), keep))
            yield* repo.deleting(id, server)
        })
        yield* store.write(finish)
        if ((yield* backupOf(task)).state !== "done")
          return yield* new OperationFailed({ reason: "the backup was cancelled" })
      }),
      cancel: Effect.fnUntraced(function* (call, server) {
        const backup = yield* backupOf(call.task)
        // The work may finish it at the same time: one of both writes is without effect.
        if ((yield* store.write(repo.unfinish(backup.id))) === undefined) return
        const request = { ...call, target: yield* accessIn(targets, backup) }
        const { backups } = yield* daemons.of(server.node_id)
        yield* asked(backups.cancel(server.id, request))
      })
    }
    /** Notes what a verification has found, unless it could not read the backup. */
    const checked = Effect.fnUntraced(function* (
      { id, server_id }: BackupRecord,
      { damaged, reason = "it is damaged", state }: BackupTaskState
    ) {
      if (state !== "done" && damaged !== true) return
      const at = yield* nowText
      const result = state === "done" ? { at, ok: true } : { at, ok: false, reason }
      yield* store.write(repo.verified(id, result, index.factsOf(server_id)))
    })
    const verify: OperationRunner = {
      run: Effect.fnUntraced(function* (operation, server, report): Effect.fn.Return<void, RunnerError> {
        const { backup, request } = yield* callOf(operation)
        const { backups } = yield* daemons.of(targets.nodeFor(backup, request.target))
        yield* follow(backups, server, request, report, (now) => checked(backup, now))
      }),
      cancel: Effect.fnUntraced(function* (operation, server): Effect.fn.Return<undefined, RunnerError> {
        const { backup, request } = yield* callOf(operation)
        const { backups } = yield* daemons.of(targets.nodeFor(backup, request.target))
        yield* asked(backups.cancel(server.id, request))
      })
    }
    /** Ends the task of a backup whose server was deleted with force: the node may still pack what it holds (spec 12.3). */
    const ending = Effect.fnUntraced(
      function* (operation: OperationRecord) {
        const { server_id: id } = operation
        if ((yield* index.lookUp(id)) !== undefined) return
        const call = yield* taskCallOf(operation)
        const { node_id } = yield* backupOf(call.task)
        yield* create.cancel(call, { id, node_id })
      },
      Effect.catchTag("NodeUnreachable", ({ node_id }) =>
        Effect.logWarning(`the parts of a failed backup may stay: node ${node_id} is not connected`)
      )
    )
    register("backup.create", {
      run: Effect.fnUntraced(function* (operation, server, report) {
        yield* create.run(yield* taskCallOf(operation), server, report)
      }),
      ending,
      cancel: Effect.fnUntraced(function* (operation, server) {
        yield* create.cancel(yield* taskCallOf(operation), server)
        return undefined
      })
    })
    const restore = yield* makeRestoreRunner(create)
    register("backup.restore", restore)
    register("backup.drill", yield* makeDrillRunner(restore))
    register("backup.verify", verify)
  })
)
