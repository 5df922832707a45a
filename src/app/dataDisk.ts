import { Effect, Metric, Schedule } from "effect"
import { type DiskError, holdReserve, makeRoomToStart, spaceOf } from "../controlPlane/store/disk/reserve.ts"
import { diskFree } from "../shared/observability/metrics.ts"

/** Part of the disk below which a warning is due, and from which the disk has recovered. */
const LOW = 0.05
const RECOVERED = 0.06

const LOOK_EVERY = "1 second"

const describe = (free: number, total: number) =>
  `${Math.floor(free / 1_048_576)} MiB of ${Math.floor(total / 1_048_576)} MiB are free`

/**
 * Checks the data disk each second, warns below 5 % and logs the recovery. A full disk releases `reserve`, the space
 * for the next start.
 */
export const watchDataDisk = Effect.fnUntraced(function* (folder: string, reserve?: string) {
  let isLow = false
  const look = Effect.gen(function* () {
    const space = yield* spaceOf(folder)
    const { free, total } = space
    yield* Metric.update(diskFree, free)
    const part = total === 0 ? 1 : free / total
    if (!isLow && part < LOW) {
      isLow = true
      yield* Effect.logWarning(`the disk of the data folder is almost full: ${describe(free, total)}`)
    } else if (isLow && part >= RECOVERED) {
      isLow = false
      yield* Effect.logInfo(`the disk of the data folder has room again: ${describe(free, total)}`)
    }
    if (reserve !== undefined) yield* holdReserve(reserve, space)
  })
  const quietly = Effect.catch((error: DiskError) =>
    Effect.logDebug(`the disk of the data folder cannot be read: ${error.message}`)
  )
  if (reserve !== undefined) yield* quietly(makeRoomToStart(reserve, folder))
  yield* quietly(look).pipe(
    Effect.annotateLogs({ folder }),
    Effect.repeat(Schedule.spaced(LOOK_EVERY)),
    Effect.forkScoped
  )
})
