import { Clock, Effect, Layer, Schedule } from "effect"
import type { BackupRecord } from "../../contract/domain/Backup.ts"
import { FileTaskRunners } from "../files/runners.ts"
import { layerOperationsWith } from "../operations/Operations.ts"
import { Leadership } from "../store/Leadership.ts"
import { BackupRepo } from "../store/repos/BackupRepo.ts"
import { Store } from "../store/Store.ts"
import { Backups, makeRemoveBackup } from "./Backups.ts"
import { BackupTargets } from "./BackupTargets.ts"
import { Drills, drillRemovals } from "./Drills.ts"
import { Restores } from "./Restores.ts"
import { BackupRunners } from "./runners.ts"
import type { BackupTargetsOptions } from "./targetsFile.ts"

/** Backups of one round. */
const AT_ONCE = 100

/** Removes expired and deleted backups on the leader, one after another (spec 12.1). */
const BackupExpiry = Layer.effectDiscard(
  Effect.gen(function* () {
    const leadership = yield* Leadership
    const remove = yield* makeRemoveBackup
    const repo = yield* BackupRepo
    const store = yield* Store

    const removeOne = (record: BackupRecord) =>
      remove(record).pipe(
        Effect.andThen(
          record.state === "deleting" ? Effect.void : Effect.logInfo("a backup has expired and was removed")
        ),
        // Its node is away: the next round tries again.
        Effect.catch((error) => Effect.logDebug(`a backup was not removed: ${error._tag}`)),
        Effect.annotateLogs({ backup_id: record.id, server_id: record.server_id })
      )
    const round = Effect.gen(function* () {
      const now = new Date(yield* Clock.currentTimeMillis).toISOString()
      const due = yield* store.read(repo.due(now, AT_ONCE))
      yield* Effect.forEach(due, removeOne, { discard: true })
    }).pipe(Effect.catch(({ detail }) => Effect.logDebug(`backups were not looked at: ${detail}`)))
    yield* leadership.whileLeader(Effect.asVoid(Effect.repeat(round, Schedule.spaced("10 seconds"))))
  })
)

/** Operations with all their kinds, and backups. */
export const layerBackups = (options: BackupTargetsOptions) =>
  Layer.provideMerge(
    Layer.merge(BackupExpiry, drillRemovals),
    Layer.provideMerge(Layer.merge(Restores.layer, Drills.layer), Backups.layer)
  ).pipe(
    Layer.provideMerge(layerOperationsWith(Layer.mergeAll(FileTaskRunners, BackupRunners))),
    Layer.provideMerge(BackupTargets.layer(options))
  )
