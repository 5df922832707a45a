/**
 * What a server has written, as one plain folder: the upper layers of an overlay instance, each where it belongs. The
 * base and the volumes below are not in it; an instance that was made by copies has them among its files anyway.
 */
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { type IoError, io, listFolder, lstat, rename } from "../disk/fsio.ts"
import { makeFolderLike, overOf } from "./overlayTree.ts"
import { instanceFolder } from "./presentFiles.ts"
import { settleFiles } from "./swapIn.ts"
import { readTreeRecord, TREE } from "./treeRecord.ts"

/** Whether a server's folder has files of an instance, though they may not be mounted. */
export const hasFiles = Effect.fnUntraced(function* (folder: string) {
  if ((yield* readTreeRecord(join(folder, TREE))) !== undefined) return true
  return (yield* listFolder(instanceFolder(folder))).length > 0
})

/** Where a nested layer belongs in the one around it; undefined where something else is in the way. */
const placeOf = Effect.fnUntraced(function* (upper: string, target: ReadonlyArray<string>) {
  let place = upper
  for (const [index, part] of target.entries()) {
    place = join(place, part)
    const stats = yield* lstat(place)
    const last = index === target.length - 1
    if (stats === undefined && !last) yield* makeFolderLike(place, upper)
    else if (stats !== undefined && !stats.isDirectory()) return undefined
  }
  return (yield* listFolder(place)).length === 0 ? place : undefined
})

/** How overlayfs notes that a file of a lower layer was removed: nothing that another folder could take over. */
const removeWhiteouts = (folder: Buffer): Effect.Effect<void, IoError> =>
  Effect.gen(function* () {
    const entries = yield* io(`read folder ${folder}`, () =>
      fs.readdir(folder, { withFileTypes: true, encoding: "buffer" })
    )
    for (const entry of entries) {
      const path = Buffer.concat([folder, Buffer.from("/"), entry.name])
      if (entry.isDirectory()) yield* removeWhiteouts(path)
      if (!entry.isCharacterDevice()) continue
      const { rdev } = yield* io(`look at ${path}`, () => fs.lstat(path))
      if (rdev === 0) yield* io(`remove ${path}`, () => fs.unlink(path))
    }
  })

/**
 * Puts all that a server has written into its folder's `files`. Nothing may be mounted there, and no process of it may
 * run. Cut off, it can be done again. Answers the targets of volumes whose layers stay where they are, since something
 * is in the way.
 */
export const gatherOwn = Effect.fnUntraced(function* (folder: string) {
  yield* settleFiles(folder)
  const tree = join(folder, TREE)
  const upper = join(tree, "upper")
  const record = yield* readTreeRecord(tree)
  const left: Array<string> = []
  if (record === undefined || (yield* lstat(upper)) === undefined) return left
  for (const [index, { target }] of record.nested.entries()) {
    const own = join(overOf(tree, index), "upper")
    if ((yield* lstat(own)) === undefined) continue
    const place = yield* placeOf(upper, target)
    if (place === undefined) left.push(target.join("/"))
    else yield* rename(own, place)
  }
  yield* removeWhiteouts(Buffer.from(upper))
  yield* rename(upper, instanceFolder(folder))
  return left
})
