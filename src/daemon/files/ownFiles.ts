/**
 * The files that a server has written, as one folder: the upper layers of an overlay instance, merged. The base and
 * volumes below are excluded; an instance made by copies includes them.
 */
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { entryPath, forEachEntry, type IoError, io, isEmptyFolder, lstat, rename } from "../disk/fsio.ts"
import { makeFolderLike, overOf } from "./overlayTree.ts"
import { instanceFolder } from "./presentFiles.ts"
import { recoverFiles } from "./swapIn.ts"
import { readTreeRecord, TREE } from "./treeRecord.ts"

export const hasFiles = Effect.fnUntraced(function* (folder: string) {
  if ((yield* readTreeRecord(join(folder, TREE))) !== undefined) return true
  return !(yield* isEmptyFolder(instanceFolder(folder)))
})

/** Returns the place of a nested layer in the surrounding one; undefined: another entry is in the way. */
const placeOf = Effect.fnUntraced(function* (upper: string, target: ReadonlyArray<string>) {
  let place = upper
  for (const [index, part] of target.entries()) {
    place = join(place, part)
    const stats = yield* lstat(place)
    const last = index === target.length - 1
    if (stats === undefined && !last) yield* makeFolderLike(place, upper)
    else if (stats !== undefined && !stats.isDirectory()) return undefined
  }
  return (yield* isEmptyFolder(place)) ? place : undefined
})

/** Removes the marks of overlayfs for removed files of lower layers, which mean nothing in another folder. */
const removeWhiteouts = (folder: Buffer): Effect.Effect<void, IoError> =>
  forEachEntry(
    folder,
    Effect.fnUntraced(function* (entry) {
      const path = entryPath(folder, entry.name)
      if (entry.isDirectory()) yield* removeWhiteouts(path)
      if (!entry.isCharacterDevice()) return
      const { rdev } = yield* io(`stat ${path}`, () => fs.lstat(path))
      if (rdev === 0) yield* io(`remove ${path}`, () => fs.unlink(path))
    })
  )

/**
 * Moves all files that a server has written into `files` of its folder. Requires that nothing is mounted and no process
 * runs. An interrupted run can be repeated. Returns the targets of volumes whose layers stay in place, because another
 * entry is in the way.
 */
export const mergeOwnFiles = Effect.fnUntraced(function* (folder: string) {
  yield* recoverFiles(folder)
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
