import { join } from "node:path"
import { Effect } from "effect"
import { listFolder, lstat } from "../disk/fsio.ts"
import { PRIVATE_NAMES } from "../runtime/isolatedStart.ts"
import { type TreeSize, treeSize } from "./copyTree.ts"
import type { FilePlan } from "./filePlan.ts"
import { instanceFolder } from "./presentFiles.ts"
import { readTreeRecord, TREE, type TreeRecord } from "./treeRecord.ts"
import { unnamedFiles } from "./unnamedFiles.ts"

/** The disk usage of one server, in bytes. */
export interface DiskUsage {
  /** All files of the server alone, copies included. */
  readonly disk_bytes: number
  /**
   * The files above the base and volumes; for a copied instance, all files, because shared blocks cannot be attributed.
   */
  readonly overlay_bytes: number
}

export const sumOf = (sizes: ReadonlyArray<TreeSize>): TreeSize => ({
  bytes: sizes.reduce((total, { bytes }) => total + bytes, 0),
  entries: sizes.reduce((total, { entries }) => total + entries, 0),
  unmeasured: sizes.find(({ unmeasured }) => unmeasured !== undefined)?.unmeasured
})

/** Measures a private folder of a server, which is on the disk of the node. */
export const privateSize = (folder: string, which: keyof typeof PRIVATE_NAMES, changedSince?: number) =>
  treeSize(join(folder, PRIVATE_NAMES[which]), changedSince)

/** Measures the files without a name that processes of a server have on the disk of the node. */
export const unnamedSize = Effect.fnUntraced(function* (
  folder: string,
  pids: ReadonlyArray<number>,
  changedSince?: number
) {
  const found = yield* Effect.forEach([folder, instanceFolder(folder)], lstat)
  return yield* unnamedFiles(pids, new Set(found.flatMap((stats) => stats?.dev ?? [])), changedSince)
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

/** Measures the files of a server, without shared ones. */
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
