/** Disk limits where the file system does not enforce them: what servers have written is measured now and then. */
import { Effect } from "effect"
import { elapsedMillis } from "../../domain/elapsed.ts"
import { megabytes } from "../../domain/Limits.ts"
import { isUp } from "../../domain/ServerStatus.ts"
import { appendConsoleLine } from "../console/consoleFiles.ts"
import type { IoError } from "../disk/fsio.ts"
import { diskLimit, usageText } from "../files/diskLimits.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import type { Instance } from "./Instance.ts"

/** How long a server that has written too much may take to stop, in seconds. */
const PATIENCE = 30
/** Of its time, no more than one in so many parts goes into measuring one server. */
const SHARE = 50

export interface DiskWatchOptions {
  readonly files: InstanceFiles["Service"]
  readonly instances: () => Iterable<Instance>
  /** Between two looks. */
  readonly seconds: number
}

/** Stops servers that have written more than they may; for ever. */
export const watchDisks = ({ files, instances, seconds }: DiskWatchOptions): Effect.Effect<never> => {
  /** When a server is looked at again: one with many files less often. */
  const due = new WeakMap<Instance, number>()

  const look = Effect.fnUntraced(function* (instance: Instance): Effect.fn.Return<void, IoError> {
    const { spec, status } = instance.file.get()
    if (!isUp(status) || status === "stopping" || diskLimit(spec) === 0) return
    const began = yield* elapsedMillis
    if (began < (due.get(instance) ?? 0)) return
    const over = yield* files.overLimit(instance.folder, spec, { temporary: true })
    const ended = yield* elapsedMillis
    due.set(instance, ended + (ended - began) * SHARE)
    if (over === undefined) return
    const what = `${usageText(over)} written, ${megabytes(over.limit)} allowed`
    yield* Effect.logWarning(`server ${spec.id} is stopped: ${what}`)
    yield* appendConsoleLine(instance.folder, `Disk limit: ${what}. The server is stopped.`)
    yield* Effect.catch(instance.power("stop", PATIENCE), (error) =>
      Effect.logWarning(`server ${spec.id} cannot be stopped: ${error.detail}`)
    )
  })

  return Effect.suspend(() =>
    Effect.forEach(
      [...instances()],
      (instance) => Effect.catch(look(instance), (error) => Effect.logWarning(error.message)),
      { discard: true }
    )
  ).pipe(Effect.delay(seconds * 1000), Effect.forever)
}
