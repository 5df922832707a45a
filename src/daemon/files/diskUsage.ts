import type { Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import type { FilePlan } from "../../contract/domain/filePlan.ts"
import { forEachEntry, io, listFolder, lstat } from "../disk/fsio.ts"
import { PRIVATE_NAMES } from "../runtime/isolatedStart.ts"
import { type TreeSize, treeSize } from "./copyTree.ts"
import { instanceFolder } from "./sharedFiles.ts"
import { readTreeRecord, TREE, type TreeRecord } from "./treeRecord.ts"

const MAX_OPEN = 100_000
const CONCURRENCY = 16

/** Returns the value of an effect on a process, unless it has ended or access is denied. */
const ofProcess = <A, E>(effect: Effect.Effect<A, E>) => Effect.orElseSucceed(effect, () => undefined)

/** Measures unnamed files of processes on `devices`, each once, if changed after `changedSince` (ms). */
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
  return {
    bytes: [...found.values()].reduce((total, { blocks }) => total + blocks * 512, 0),
    entries: found.size,
    unmeasured
  } satisfies TreeSize
})

export const sumOf = (sizes: ReadonlyArray<TreeSize>): TreeSize => ({
  bytes: sizes.reduce((total, { bytes }) => total + bytes, 0),
  entries: sizes.reduce((total, { entries }) => total + entries, 0),
  unmeasured: sizes.find(({ unmeasured }) => unmeasured !== undefined)?.unmeasured
})

const privateSize = (folder: string, which: keyof typeof PRIVATE_NAMES, changedSince?: number) =>
  treeSize(join(folder, PRIVATE_NAMES[which]), changedSince)

/** Measures the log and, for the processes of a running server, the temporary folder and files without a name. */
export const besideSize = Effect.fnUntraced(function* (
  folder: string,
  pids: ReadonlyArray<number> | undefined,
  changedSince?: number
) {
  const log = yield* privateSize(folder, "log", changedSince)
  if (pids === undefined) return log
  const found = yield* Effect.forEach([folder, instanceFolder(folder)], lstat)
  const devices = new Set(found.flatMap((stats) => stats?.dev ?? []))
  const temporary = yield* privateSize(folder, "temporary", changedSince)
  return sumOf([log, temporary, yield* unnamedFiles(pids, devices, changedSince)])
})

const sumOfTrees = (tree: string, names: ReadonlyArray<string>, changedSince?: number) =>
  Effect.map(
    Effect.forEach(names, (name) => treeSize(join(tree, name), changedSince)),
    sumOf
  )

/** Measures the files of an instance that count against the disk limit, without shared ones. */
export const ownSize = Effect.fnUntraced(function* (
  folder: string,
  plan: FilePlan,
  record: TreeRecord | undefined,
  changedSince?: number
) {
  if (record !== undefined) {
    const uppers = ["upper", ...record.nested.map((_, index) => `over.${index}/upper`)]
    return yield* sumOfTrees(join(folder, TREE), uppers, changedSince)
  }
  const files = instanceFolder(folder)
  return yield* treeSize(files, changedSince, new Set(plan.shared.map(({ parts }) => join(files, ...parts))))
})

/** `overlay_bytes`: the files above base and volumes, or all of a copied instance, whose shared blocks have no owner. */
export const diskUsage = Effect.fnUntraced(function* (folder: string, plan: FilePlan) {
  const tree = join(folder, TREE)
  const record = yield* readTreeRecord(tree)
  const own = yield* ownSize(folder, plan, record)
  const copied =
    record === undefined ? [] : (yield* listFolder(tree)).filter((name) => name.startsWith("lower."))
  const { bytes } = sumOf([
    own,
    yield* sumOfTrees(tree, copied),
    yield* privateSize(folder, "temporary"),
    yield* privateSize(folder, "log")
  ])
  return { disk_bytes: bytes, overlay_bytes: own.bytes }
})
export type DiskUsage = Effect.Success<ReturnType<typeof diskUsage>>
