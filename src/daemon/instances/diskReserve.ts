/** The space of the node's disk that servers do not get: files that no measurement finds take space, too. */
import * as fs from "node:fs/promises"
import { Effect } from "effect"
import { elapsedMillis } from "../../domain/elapsed.ts"
import { megabytes } from "../../domain/Limits.ts"
import { io } from "../disk/fsio.ts"
import { bytesWritten } from "../host/procfs.ts"
import type { Run } from "../runtime/Runtime.ts"
import type { Instance } from "./Instance.ts"
import { stopForDisk } from "./stopForDisk.ts"

/** The reserve is at most this fraction (1/n) of the disk. */
const DISK_SHARE = 20
/** Servers are stopped only if the free space falls by this fraction (1/n) of the reserve. */
const STEP = 16

/** The bytes that each run has written since its start. */
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
  readonly instances: () => Iterable<Instance>
  /** The reserve in bytes, at most a twentieth of the disk; 0: none. */
  readonly reserve: number
  /** Seconds between two looks at what servers have written, while there is more space than the reserve. */
  readonly seconds: number
}

/** Stops the servers that write most while the disk has less free space than the reserve; never ends. */
export const watchReserve = Effect.fnUntraced(function* ({
  dataDir,
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
    return { at: yield* elapsedMillis, free, owners, written }
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
    const largest = largestWriter(before.written, now.written, fell)
    const instance = largest === undefined ? undefined : now.owners.get(largest)
    before = now
    if (instance === undefined) {
      return yield* Effect.logWarning(
        `the disk of the node has ${megabytes(free)} free, less than its reserve of ${megabytes(reserve)}, and its servers have not filled it: free space on the file system of ${dataDir}`
      )
    }
    yield* Effect.annotateLogs(stop(instance, free, reserve), { server_id: instance.file.get().spec.id })
  })
  return yield* look.pipe(
    Effect.catch((error) => Effect.logWarning(error.message)),
    Effect.delay("1 second"),
    Effect.forever
  )
})
