import { join } from "node:path"
import { Effect } from "effect"
import { listFolder } from "../disk/fsio.ts"
import { treeBytes } from "./copyTree.ts"
import type { FilePlan } from "./filePlan.ts"
import { instanceFolder } from "./presentFiles.ts"
import { readTreeRecord, TREE } from "./treeRecord.ts"

/** What is on disk for one server alone, in bytes. */
export interface DiskUsage {
  /** All of it: with what was copied for it. */
  readonly disk_bytes: number
  /** What lies over the base and the volumes; of a copy, all of it: whose a block is cannot be told. */
  readonly overlay_bytes: number
}

/** Measures the files of a server; what is shared with others does not count. */
export const diskUsage = Effect.fnUntraced(function* (folder: string, plan: FilePlan) {
  const tree = join(folder, TREE)
  const record = yield* readTreeRecord(tree)
  if (record === undefined) {
    const files = instanceFolder(folder)
    const shared = new Set(plan.shared.map(({ parts }) => join(files, ...parts)))
    const bytes = yield* treeBytes(files, shared)
    return { disk_bytes: bytes, overlay_bytes: bytes }
  }
  const sum = Effect.fnUntraced(function* (names: ReadonlyArray<string>) {
    let bytes = 0
    for (const name of names) bytes += yield* treeBytes(join(tree, name))
    return bytes
  })
  const overlay_bytes = yield* sum(["upper", ...record.nested.map((_, index) => `over.${index}/upper`)])
  const copied = (yield* listFolder(tree)).filter((name) => name.startsWith("lower."))
  return { disk_bytes: overlay_bytes + (yield* sum(copied)), overlay_bytes }
})
