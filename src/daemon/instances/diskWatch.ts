/** Disk limits that the file system does not enforce: usage is measured periodically. */
import { Effect } from "effect"
import { elapsedMillis } from "../../domain/elapsed.ts"
import { megabytes } from "../../domain/Limits.ts"
import { isUp } from "../../domain/ServerStatus.ts"
import { appendConsoleLine } from "../console/consoleFiles.ts"
import type { IoError } from "../disk/fsio.ts"
import { diskLimit, usageText } from "../files/diskLimits.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import type { Instance } from "./Instance.ts"

/** The time for a server to stop after it exceeded its limit, in seconds. */
const STOP_TIMEOUT = 30
/** Measuring one server takes at most this fraction (1/n) of the time. */
const TIME_SHARE = 50

export interface DiskWatchOptions {
  readonly files: InstanceFiles["Service"]
  readonly instances: () => Iterable<Instance>
  /** Seconds between two rounds. */
  readonly seconds: number
}

/** Stops servers that exceed their disk limit; never ends. */
export const watchDisks = ({ files, instances, seconds }: DiskWatchOptions): Effect.Effect<never> => {
  /** The next measurement of a server, later if it has many files. */
  const due = new WeakMap<Instance, number>()

  const check = Effect.fnUntraced(function* (instance: Instance): Effect.fn.Return<void, IoError> {
    const { spec, status } = instance.file.get()
    if (!isUp(status) || status === "stopping" || diskLimit(spec) === 0) return
    const startedAt = yield* elapsedMillis
    if (startedAt < (due.get(instance) ?? 0)) return
    const over = yield* files.overLimit(instance.folder, spec, { temporary: true })
    const endedAt = yield* elapsedMillis
    due.set(instance, endedAt + (endedAt - startedAt) * TIME_SHARE)
    if (over === undefined) return
    const what = `${usageText(over)} written, ${megabytes(over.limit)} allowed`
    yield* Effect.logWarning(`the server exceeds its disk limit and is stopped: ${what}`)
    yield* appendConsoleLine(instance.folder, `Disk limit: ${what}. The server is stopped.`)
    yield* Effect.catch(instance.power("stop", STOP_TIMEOUT), (error) =>
      Effect.logWarning(`the server cannot be stopped: ${error.detail}`)
    )
  })

  return Effect.suspend(() =>
    Effect.forEach(
      [...instances()],
      (instance) =>
        Effect.catch(check(instance), (error) => Effect.logWarning(error.message)).pipe(
          Effect.annotateLogs({ server_id: instance.file.get().spec.id })
        ),
      { discard: true }
    )
  ).pipe(Effect.delay(seconds * 1000), Effect.forever)
}
