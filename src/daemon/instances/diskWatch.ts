/** Disk limits that the file system does not enforce: usage is measured periodically. */
import { Effect, Option } from "effect"
import { megabytes } from "../../contract/domain/Limits.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import { appendConsoleLine } from "../console/consoleFiles.ts"
import type { IoError } from "../disk/fsio.ts"
import { diskLimit } from "../files/diskLimits.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import { withProblem } from "../state/ServerFile.ts"
import type { Instance } from "./Instance.ts"

/** The time for a server to stop, in seconds. */
const STOP_TIMEOUT = 30

/**
 * Stops a server for its use of the disk, or kills it if it is being stopped. The reason is its problem, a line of its
 * console and a warning.
 */
export const stopForDisk = Effect.fnUntraced(function* (
  instance: Instance,
  why: { readonly status: 409 | 507; readonly detail: string; readonly hint: string }
) {
  const { file, folder } = instance
  const since = yield* nowText
  const { status } = yield* file.update((state) => withProblem(state, why, since))
  const action = status === "stopping" ? "kill" : "stop"
  const text = `the node ${action === "kill" ? "kills" : "stops"} the server: ${why.detail}`
  yield* Effect.logWarning(text)
  yield* Effect.catch(appendConsoleLine(folder, text), (error) => Effect.logWarning(error.message))
  yield* Effect.catch(instance.power(action, STOP_TIMEOUT), (error) =>
    Effect.logWarning(`the server cannot be stopped: ${error.detail}`)
  )
})

/** Measuring one server takes at most this fraction (1/n) of the time, unless the longest pause is shorter. */
const TIME_SHARE = 50
/** The longest pause between two measurements of a server, and the longest measurement, in rounds. */
const MAX_ROUNDS = 5
/** A measurement may take this time with short rounds, too, in seconds. */
const MIN_TIMEOUT = 10
/** Servers that are measured at a time, so that one with many files does not delay all others. */
const CONCURRENCY = 2

export interface DiskWatchOptions {
  readonly files: InstanceFiles["Service"]
  readonly instances: () => Iterable<Instance>
  readonly seconds: number
}

export const watchDisks = ({ files, instances, seconds }: DiskWatchOptions): Effect.Effect<never> => {
  /** The next measurement of a server, later if it has many files. */
  const due = new WeakMap<Instance, number>()
  const longest = Math.max(MIN_TIMEOUT, MAX_ROUNDS * seconds)

  const check = Effect.fnUntraced(function* (instance: Instance): Effect.fn.Return<void, IoError> {
    const { spec, status } = instance.file.get()
    const limit = diskLimit(spec)
    if (!isUp(status) || status === "stopping" || limit === 0) return
    const startedAt = yield* elapsedMillis
    if (startedAt < (due.get(instance) ?? 0)) return
    const pids = (yield* instance.run()?.pids ?? Effect.undefined) ?? []
    const over = yield* Effect.timeoutOption(files.overLimit(instance.folder, spec, pids), longest * 1000)
    const endedAt = yield* elapsedMillis
    const pause = Math.min((endedAt - startedAt) * TIME_SHARE, MAX_ROUNDS * seconds * 1000)
    due.set(instance, endedAt + pause)
    const late = {
      used: `an unknown size (measuring takes longer than ${longest} s)`,
      allowed: megabytes(limit)
    }
    const found = Option.getOrElse(over, () => late)
    if (found === undefined) return
    yield* stopForDisk(instance, {
      status: 409,
      detail: `it exceeds its disk limit: ${found.used} written, ${found.allowed} allowed`,
      hint: "Remove files of the server on its node, reset the server, or raise limits.disk_space: PATCH /api/servers/:server. Then start it."
    })
  })

  return Effect.suspend(() =>
    Effect.forEach(
      [...instances()],
      (instance) =>
        Effect.catch(check(instance), (error) => Effect.logWarning(error.message)).pipe(
          Effect.annotateLogs({ server_id: instance.file.get().spec.id })
        ),
      { concurrency: CONCURRENCY, discard: true }
    )
  ).pipe(Effect.delay(seconds * 1000), Effect.forever)
}
