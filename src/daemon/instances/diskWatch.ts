/** Disk limits that the file system does not enforce: usage is measured periodically. */
import { Clock, Effect, Number as Num, Option } from "effect"
import { megabytes } from "../../contract/domain/Limits.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import { appendConsoleLine } from "../console/consoleFiles.ts"
import { diskOf, type IoError, orWarn } from "../disk/fsio.ts"
import { diskLimit } from "../files/diskLimits.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import { bytesWritten } from "../host/procfs.ts"
import type { Run } from "../runtime/Runtime.ts"
import { withProblem } from "../state/InstanceState.ts"
import type { Instance } from "./Instance.ts"

/** The time for a server to stop, in seconds. */
const STOP_TIMEOUT = 30

/** Stops a server for its disk usage, or kills it if it is stopping, with the reason in problem, console and log. */
const stopForDisk = Effect.fnUntraced(function* (
  instance: Instance,
  why: { readonly status: 409 | 507; readonly detail: string; readonly hint: string }
) {
  const { file, folder } = instance
  const since = yield* nowText
  const { status } = yield* file.update((state) => withProblem(state, why, since))
  const action = status === "stopping" ? "kill" : "stop"
  const text = `the node ${action === "kill" ? "kills" : "stops"} the server: ${why.detail}`
  yield* Effect.logWarning(text)
  yield* orWarn(appendConsoleLine(folder, text))
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
        orWarn(check(instance)).pipe(Effect.annotateLogs({ server_id: instance.file.get().spec.id })),
      { concurrency: CONCURRENCY, discard: true }
    )
  ).pipe(Effect.delay(seconds * 1000), Effect.forever)
}

/** The reserve is at most this fraction (1/n) of the disk. */
const DISK_SHARE = 20
/** Servers are stopped only if the free space falls by this fraction (1/n) of the reserve. */
const STEP = 16
const MEASURED = 2

type Written<R> = ReadonlyMap<R, number>

/** Returns the run that wrote most, unless all wrote less than half of `fell`, the lost space in bytes. */
export const largestWriter = <R>(before: Written<R>, now: Written<R>, fell: number): R | undefined => {
  let [all, most]: [number, number] = [0, 0]
  let largest: R | undefined
  for (const [run, bytes] of now) {
    const since = Math.max(0, bytes - (before.get(run) ?? 0))
    all += since
    if (since > most) [most, largest] = [since, run]
  }
  return all < fell / 2 ? undefined : largest
}

export interface DiskReserveOptions extends DiskWatchOptions {
  readonly dataDir: string
  /** The reserve in bytes, at most a twentieth of the disk, or 0 for none. */
  readonly reserve: number
  /** Begins to remove files of deleted servers; false if there are none. */
  readonly freeKept: Effect.Effect<boolean, IoError>
}

/**
 * Removes the files of deleted servers, then stops the servers that write most, while the disk has less free space than
 * the reserve; never ends.
 */
export const watchReserve = Effect.fnUntraced(function* ({
  dataDir,
  files,
  freeKept,
  instances,
  reserve: wanted,
  seconds
}: DiskReserveOptions) {
  if (wanted === 0) return yield* Effect.never
  const disk = Effect.map(diskOf(dataDir), ({ free, total }) => ({
    free,
    reserve: Math.min(wanted, Math.floor(total / DISK_SHARE))
  }))
  const sample = Effect.fnUntraced(function* (free: number) {
    const written = new Map<Run, number>()
    const owners = new Map<Run, Instance>()
    for (const instance of instances()) {
      const run = instance.run()
      if (run?.pids === undefined) continue
      const pids = yield* run.pids
      written.set(run, Num.sumAll(pids.map(bytesWritten)))
      owners.set(run, instance)
    }
    return { at: yield* elapsedMillis, since: yield* Clock.currentTimeMillis, free, owners, written }
  })

  const first = yield* Effect.orElseSucceed(disk, () => ({ free: 0 }))
  let before = yield* sample(first.free)

  const stop = Effect.fnUntraced(function* (instance: Instance, free: number, reserve: number) {
    // A server that stops may save its world, as long as there is space for it.
    if (instance.file.get().status === "stopping" && free > reserve / 2) return
    yield* stopForDisk(instance, {
      status: 507,
      detail: `the disk of its node has ${megabytes(free)} free, less than the reserve of ${megabytes(reserve)}, and the server has written most of late`,
      hint: "Free space on the disk of the node, or set a limits.disk_space for its servers. Then start it."
    })
  })

  /** Returns servers whose changed files take half of the lost space: unwritten allocations do not count. */
  const changers = (of: Iterable<readonly [Run, Instance]>, since: number, fell: number) =>
    Effect.filter(
      [...of],
      ([run, { file, folder }]) =>
        Effect.flatMap(run.pids ?? Effect.succeed([]), (pids) =>
          files.changed(folder, file.get().spec, pids, since)
        ).pipe(
          Effect.map(({ bytes, unmeasured }) => bytes >= fell / 2 || unmeasured !== undefined),
          Effect.catch((error) => Effect.as(Effect.logWarning(error.message), false))
        ),
      { concurrency: MEASURED }
    )

  const look = Effect.gen(function* () {
    const { free, reserve } = yield* disk
    if (free >= reserve) {
      if ((yield* elapsedMillis) - before.at >= seconds * 1000) before = yield* sample(free)
      return
    }
    if ((yield* freeKept) && free > reserve / 2) return
    const fell = before.free - free
    if (fell < 0) before = { ...before, free }
    if (fell < reserve / STEP) return
    const now = yield* sample(free)
    const { since, written } = before
    const largest = largestWriter(written, now.written, fell)
    before = now
    const found =
      largest === undefined
        ? yield* changers(now.owners, since, fell)
        : [...now.owners].filter(([run]) => run === largest)
    if (found.length === 0) {
      return yield* Effect.logWarning(
        `the disk of the node has ${megabytes(free)} free, less than its reserve of ${megabytes(reserve)}, and its servers have not filled it: free space on the file system of ${dataDir}`
      )
    }
    for (const [, instance] of found)
      yield* Effect.annotateLogs(stop(instance, free, reserve), { server_id: instance.file.get().spec.id })
  })
  return yield* look.pipe(orWarn, Effect.delay("1 second"), Effect.forever)
})
