/** Restores of backups over the files of servers (spec 12.5); `restoreRunner` does the work of their operations. */
import { Context, Effect, Layer } from "effect"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import type { RestoreRequest, RestoreWork } from "../../contract/domain/Backup.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import { Operations } from "../operations/Operations.ts"
import { notOffline, wrongStatus } from "../servers/state/conflicts.ts"
import { makeNodeCalls } from "../servers/state/nodeCalls.ts"
import { Backups, makeNewBackup } from "./Backups.ts"

/** Seconds for which the backup of the files that a restore replaces is stored: 7 days. */
const SAFETY_EXPIRES = 7 * 24 * 3600

export class Restores extends Context.Service<Restores>()("muster/backups/Restores", {
  make: Effect.gen(function* () {
    const backups = yield* Backups
    const newBackup = yield* makeNewBackup
    const operations = yield* Operations
    const { recordOf, refuseMoving } = yield* makeNodeCalls

    return {
      /**
       * Begins the restore of a backup over the files of a server.
       * @error NotFound     the server or the backup is unknown
       * @error Conflict     the server is not offline, or the backup is not done
       * @error LimitReached as of `Operations.begin`, or there is no room for the backup of the present files
       */
      restore: Effect.fn("Restores.restore")(function* (
        id: ServerId,
        { backup_id, mode = "replace", paths = ["/"], safety = true, start = false }: RestoreRequest
      ) {
        yield* describeAudit({ changes: [`backup ${backup_id}`] })
        const server = yield* recordOf(id)
        const backup = yield* backups.finished(backup_id)
        yield* refuseMoving(id)
        if (server.status !== "offline") return yield* notOffline(server)
        if (server.install.phase !== "ready") return yield* wrongStatus(server)
        const kept = safety
          ? yield* newBackup(server, {
              name: `before ${backup.name ?? backup_id}`,
              expires_in: SAFETY_EXPIRES,
              quiesce: "none"
            })
          : undefined
        const isWhole = mode === "replace" && paths.includes("/")
        const work: RestoreWork = {
          backup_id,
          // The restore also replaces files that the blueprint leaves out of backups.
          safety: kept === undefined ? null : { ...kept.task, exclude: [] },
          start,
          ...(isWhole ? {} : { part: { mode, paths } })
        }
        return yield* operations.begin("backup.restore", server, work, {
          ...(kept === undefined ? {} : { alongside: kept.insert })
        })
      })
    }
  })
}) {
  static readonly layer = Layer.effect(Restores, Restores.make)
}
