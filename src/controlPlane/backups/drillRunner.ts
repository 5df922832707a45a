import { Context, Duration, Effect } from "effect"
import { type BackupCheck, RestoreWork } from "../../contract/domain/Backup.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import type { OperationRecord } from "../../contract/domain/Operation.ts"
import type { ServerRecord } from "../../contract/domain/Server.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import {
  makeReadTask,
  OperationFailed,
  type OperationRunner,
  type RunnerError
} from "../operations/OperationRunners.ts"
import { ServerIndex } from "../servers/list/ServerIndex.ts"
import { makeWaitFor } from "../servers/waiting.ts"
import { BackupRepo } from "../store/repos/BackupRepo.ts"
import { Store } from "../store/Store.ts"
import { makeStart } from "./restoreRunner.ts"

/** The time that the server of a drill has until it is online, which tests change. */
export const DrillPatience = Context.Reference<Duration.Input>("muster/backups/DrillPatience", {
  defaultValue: () => "15 minutes"
})

/** Starts of the server: one that ends without a crash was stopped, or ended with its node. */
const STARTS = 3

const readWork = makeReadTask(RestoreWork)

/**
 * Returns the runner of `backup.drill`: the restore of a backup to the server of the drill, its start, and the wait until it
 * is online (spec 12.11). The result is stored with the backup; `drillRemovals` deletes the server once the operation has ended.
 */
export const makeDrillRunner = Effect.fnUntraced(function* (restore: OperationRunner) {
  const index = yield* ServerIndex
  const patience = yield* DrillPatience
  const repo = yield* BackupRepo
  const start = yield* makeStart
  const store = yield* Store
  const waitFor = yield* makeWaitFor

  /** Stores the result with the backup, unless the backup was deleted meanwhile. */
  const note = Effect.fnUntraced(function* (operation: OperationRecord, result: Omit<BackupCheck, "at">) {
    const at = yield* nowText
    const { backup_id } = yield* readWork(operation)
    const backup = yield* store.read(repo.find(backup_id))
    if (backup === undefined) return
    yield* store.write(repo.drilled(backup_id, { at, ...result }, index.factsOf(backup.server_id)))
  })

  const online = ({ id }: ServerRecord) =>
    waitFor(id, "running").pipe(
      Effect.mapError(({ detail }) => new OperationFailed({ reason: detail })),
      Effect.timeoutOrElse({
        duration: patience,
        orElse: () =>
          new OperationFailed({
            reason: `the server was not online within ${Duration.toSeconds(patience)} s`
          })
      })
    )

  const drill = Effect.fnUntraced(function* (
    ...[operation, server, report]: Parameters<OperationRunner["run"]>
  ): Effect.fn.Return<void, RunnerError> {
    for (let tried = 1; ; tried++) {
      const now = index.get(server.id)
      const hasBegun = now !== undefined && (isUp(now.status) || now.crashed === true)
      if (!hasBegun) {
        yield* restore.run(operation, server, report)
        yield* start(server)
      }
      const outcome = yield* Effect.result(online(server))
      if (outcome._tag === "Success") return
      if (tried === STARTS || index.get(server.id)?.crashed === true) return yield* outcome.failure
    }
  })

  const runner: OperationRunner = {
    run: Effect.fnUntraced(function* (operation, server, report) {
      yield* drill(operation, server, report)
      yield* note(operation, { ok: true })
    }),
    // Restored files alone are no drill.
    cancel: (operation, server) => Effect.as(restore.cancel(operation, server), undefined),
    ending: (operation, reason) => note(operation, { ok: false, reason: cleanText(reason) })
  }
  return runner
})
