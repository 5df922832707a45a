/** Files that a process holds open or mapped after their last name was removed: no tree has them, the disk does. */
import type { Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { Effect } from "effect"
import { forEachEntry, io } from "../disk/fsio.ts"
import type { TreeSize } from "./copyTree.ts"

/** The most open files of a server that are examined. */
const MAX_OPEN = 100_000
const CONCURRENCY = 16

/** Returns the value of an effect on a process; undefined: the process has ended, or access is denied. */
const ofProcess = <A, E>(effect: Effect.Effect<A, E>) => Effect.orElseSucceed(effect, () => undefined)

/**
 * Measures the files without a name of processes, each file once.
 *
 * @param devices      the devices whose files count
 * @param changedSince ms since the epoch: files that have not changed since then do not count
 */
export const unnamedFiles = Effect.fnUntraced(function* (
  pids: ReadonlyArray<number>,
  devices: ReadonlySet<number>,
  changedSince = 0
) {
  const found = new Map<string, Stats>()
  let open = 0
  const examine = (path: string) =>
    Effect.suspend(() => {
      open++
      if (open > MAX_OPEN) return Effect.fail("too many" as const)
      return Effect.map(ofProcess(io("stat an open file", () => fs.stat(path))), (stats) => {
        if (stats === undefined || stats.nlink > 0 || !devices.has(stats.dev)) return
        if (stats.ctimeMs < changedSince) return
        found.set(`${stats.dev}:${stats.ino}`, stats)
      })
    })
  const examineProcess = Effect.fnUntraced(function* (pid: number) {
    const folder = `/proc/${pid}/fd`
    yield* forEachEntry(folder, ({ name }) => examine(`${folder}/${name}`), { others: CONCURRENCY }).pipe(
      Effect.catchTag("IoError", () => Effect.void)
    )
    const maps = (yield* ofProcess(io("read maps", () => fs.readFile(`/proc/${pid}/maps`, "latin1")))) ?? ""
    const ranges = [...maps.matchAll(/^([0-9a-f]+-[0-9a-f]+) .*\(deleted\)$/gm)]
    yield* Effect.forEach(ranges, ([, range]) => examine(`/proc/${pid}/map_files/${range}`), {
      concurrency: CONCURRENCY,
      discard: true
    })
  })
  const unmeasured = yield* Effect.forEach(pids, examineProcess, { discard: true }).pipe(
    Effect.as(undefined),
    Effect.orElseSucceed(() => `it has more than ${MAX_OPEN} open files`)
  )
  const size: TreeSize = {
    bytes: [...found.values()].reduce((total, { blocks }) => total + blocks * 512, 0),
    entries: found.size,
    unmeasured
  }
  return size
})
