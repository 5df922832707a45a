/** The space of the node's disk that servers do not get: files that no measurement finds take space, too. */
import * as fs from "node:fs/promises"
import { Clock, Effect } from "effect"
import { megabytes } from "../../contract/domain/Limits.ts"
import { elapsedMillis } from "../../shared/work/elapsed.ts"
import { io } from "../disk/fsio.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import { bytesWritten } from "../host/procfs.ts"
import type { Run } from "../runtime/Runtime.ts"
import { stopForDisk } from "./diskWatch.ts"
import type { Instance } from "./Instance.ts"

/** The reserve is at most this fraction (1/n) of the disk. */
const DISK_SHARE = 20
/** Servers are stopped only if the free space falls by this fraction (1/n) of the reserve. */
const STEP = 16
const MEASURED = 2

type Written<R> = ReadonlyMap<R, number>

/**
 * Returns the run that has written most since an earlier time. Returns `undefined` if all runs together have written less
 * than half of the lost space: something else fills the disk.
 *
 * @param fell the lost space in bytes
 */
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

export interface DiskReserveOptions {
  readonly dataDir: string
  readonly files: InstanceFiles["Service"]
  readonly instances: () => Iterable<Instance>
  /** The reserve in bytes, at most a twentieth of the disk; 0: none. */
  readonly reserve: number
  /** Seconds between two looks at what servers have written, while there is more space than the reserve. */
  readonly seconds: number
}

/** Stops the servers that write most while the disk has less free space than the reserve; never ends. */
export const watchReserve = Effect.fnUntraced(function* ({
  dataDir,
  files,
  instances,
  reserve: wanted,
  seconds
}: DiskReserveOptions) {
  if (wanted === 0) return yield* Effect.never
  const disk = Effect.map(
    io(`read the free space of ${dataDir}`, () => fs.statfs(dataDir)),
    ({ bavail, blocks, bsize }) => ({
      // Servers cannot use the blocks that a file system keeps for root.
      free: bavail * bsize,
      reserve: Math.min(wanted, Math.floor((blocks * bsize) / DISK_SHARE))
    })
  )
  const sample = Effect.fnUntraced(function* (free: number) {
    const written = new Map<Run, number>()
    const owners = new Map<Run, Instance>()
    for (const instance of instances()) {
      const run = instance.run()
      if (run?.pids === undefined) continue
      const bytes = yield* Effect.forEach(yield* run.pids, (pid) => Effect.sync(() => bytesWritten(pid)))
      written.set(
        run,
        bytes.reduce((sum, one) => sum + one, 0)
      )
      owners.set(run, instance)
    }
    return { at: yield* elapsedMillis, since: yield* Clock.currentTimeMillis, free, owners, written }
  })

  let before = yield* sample(
    yield* Effect.orElseSucceed(
      Effect.map(disk, ({ free }) => free),
      () => 0
    )
  )

  const stop = Effect.fnUntraced(function* (instance: Instance, free: number, reserve: number) {
    // A server that stops may save its world, as long as there is space for it.
    if (instance.file.get().status === "stopping" && free > reserve / 2) return
    yield* stopForDisk(instance, {
      status: 507,
      detail: `the disk of its node has ${megabytes(free)} free, less than the reserve of ${megabytes(reserve)}, and the server has written most of late`,
      hint: "Free space on the disk of the node, or set a limits.disk_space for its servers. Then start it."
    })
  })

  /**
   * Returns the servers whose files that have changed since a time take half of the lost space, or cannot be measured:
   * no figure of the kernel has space that is allocated without a write, or was written by processes that have ended.
   */
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
  return yield* look.pipe(
    Effect.catch((error) => Effect.logWarning(error.message)),
    Effect.delay("1 second"),
    Effect.forever
  )
})
