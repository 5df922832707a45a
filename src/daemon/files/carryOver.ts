/**
 * A new base under what a server has written. Files are only ever moved, from the old upper layer to the new one, so
 * that it takes no room, and can be taken back: until the new record is there, nothing has happened.
 */
import type { Stats } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import {
  type IoError,
  listFolder,
  lstat,
  makeFolder,
  orMissing,
  removeTree,
  rename,
  syncFolder
} from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { makeFolderLike } from "./overlayTree.ts"
import { readTreeRecord, TREE, TREE_NEXT, type TreeRecord, writeTreeRecord } from "./treeRecord.ts"

/** How overlayfs notes that a file of a lower layer was removed. */
const isWhiteout = (stats: Stats) => stats.isCharacterDevice() && stats.rdev === 0

interface Bases {
  /** Undefined where that base has no such folder. */
  readonly old: string | undefined
  readonly next: string | undefined
}

const folderIn = Effect.fnUntraced(function* (base: string | undefined, name: string) {
  if (base === undefined) return undefined
  const path = join(base, name)
  return (yield* lstat(path))?.isDirectory() ? path : undefined
})

/**
 * Moves what only the server has. Files that the new base has stay behind: the base's count. Folders are made anew,
 * since an old one may hide what the base has in it.
 */
const carry = (from: string, to: string, bases: Bases): Effect.Effect<void, IoError> =>
  Effect.gen(function* () {
    for (const name of yield* listFolder(from)) {
      const [source, target] = [join(from, name), join(to, name)]
      const stats = yield* lstat(source)
      if (stats === undefined || isWhiteout(stats)) continue
      const inNext = bases.next === undefined ? undefined : yield* lstat(join(bases.next, name))
      if (!stats.isDirectory()) {
        if (inNext === undefined) yield* rename(source, target)
        continue
      }
      if (inNext !== undefined && !inNext.isDirectory()) continue
      const old = yield* folderIn(bases.old, name)
      if (inNext === undefined && old === undefined) {
        yield* rename(source, target)
        continue
      }
      yield* makeFolderLike(target, source)
      yield* carry(source, target, { old, next: yield* folderIn(bases.next, name) })
    }
  })

/** Moves everything back to where it came from. */
const takeBack = (from: string, to: string): Effect.Effect<void, IoError> =>
  Effect.gen(function* () {
    for (const name of yield* listFolder(from)) {
      const [source, target] = [join(from, name), join(to, name)]
      const there = yield* lstat(target)
      if (there?.isDirectory()) yield* takeBack(source, target)
      else if (there === undefined) yield* rename(source, target)
    }
  })

const OLD = "tree.old"
/** Layers that go over as they are: nested overlays, and the volumes copied for them. */
const movesWhole = (name: string) => /^(over|lower)\.\d+$/.test(name)

/**
 * Ends what was cut off: a `tree.next` with its record takes its place, one without is taken back. Nothing may be
 * mounted.
 */
export const settleTree = Effect.fnUntraced(function* (folder: string) {
  const [tree, next, old] = [join(folder, TREE), join(folder, TREE_NEXT), join(folder, OLD)]
  if ((yield* lstat(next)) !== undefined) {
    if ((yield* readTreeRecord(next)) !== undefined) {
      yield* rename(tree, old).pipe(orMissing(undefined))
      yield* rename(next, tree)
    } else {
      if ((yield* lstat(tree)) !== undefined) {
        for (const name of yield* listFolder(next)) {
          if (movesWhole(name)) yield* rename(join(next, name), join(tree, name))
        }
        yield* takeBack(join(next, "upper"), join(tree, "upper"))
      }
      yield* removeTree(next)
    }
  }
  yield* removeTree(old)
})

export interface CarryOptions {
  readonly folder: string
  readonly record: TreeRecord
  /** Called with the new folder while it is empty. */
  readonly prepare: (tree: string) => Effect.Effect<void, IoError>
  /** Folders of the bases; the old one may have gone. */
  readonly oldBase: string
  readonly newBase: string
  /** The user that the files of the instance belong to; absent: that of the base. */
  readonly owner: RunUser | undefined
}

/** Puts another base under the files of an overlay instance. Nothing may be mounted. */
export const carryOver = Effect.fnUntraced(function* (options: CarryOptions) {
  const { folder, newBase, oldBase, owner, prepare, record } = options
  const [tree, next] = [join(folder, TREE), join(folder, TREE_NEXT)]
  yield* Effect.gen(function* () {
    yield* makeFolder(next)
    yield* prepare(next)
    yield* makeFolderLike(join(next, "upper"), newBase, owner)
    yield* makeFolder(join(next, "work"))
    const old = (yield* lstat(oldBase))?.isDirectory() ? oldBase : undefined
    // Without the old base every folder may hide something: all are looked into.
    yield* carry(join(tree, "upper"), join(next, "upper"), {
      old: old ?? join(tree, "upper"),
      next: newBase
    })
    for (const name of yield* listFolder(tree)) {
      if (movesWhole(name)) yield* rename(join(tree, name), join(next, name))
    }
    yield* syncFolder(next)
    yield* writeTreeRecord(next, record)
  }).pipe(
    Effect.onError(() =>
      Effect.catch(settleTree(folder), (error) => Effect.logWarning(`${folder}: ${error.message}`))
    ),
    Effect.uninterruptible
  )
  yield* settleTree(folder)
})
