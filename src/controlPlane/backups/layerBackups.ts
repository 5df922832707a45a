import { Layer } from "effect"
import { FileTaskRunners } from "../files/runners.ts"
import { layerOperationsWith } from "../operations/Operations.ts"
import { Backups } from "./Backups.ts"
import { BackupTargets } from "./BackupTargets.ts"
import { Drills, drillRemovals } from "./Drills.ts"
import { Restores } from "./Restores.ts"
import { BackupExpiry } from "./retention.ts"
import { BackupRunners } from "./runners.ts"
import type { BackupTargetsOptions } from "./targetsFile.ts"

/** Operations with all their kinds, and backups. */
export const layerBackups = (options: BackupTargetsOptions) =>
  Layer.provideMerge(
    Layer.merge(BackupExpiry, drillRemovals),
    Layer.provideMerge(Layer.merge(Restores.layer, Drills.layer), Backups.layer)
  ).pipe(
    Layer.provideMerge(layerOperationsWith(Layer.mergeAll(FileTaskRunners, BackupRunners))),
    Layer.provideMerge(BackupTargets.layer(options))
  )
