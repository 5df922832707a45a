/** Replaces the base below a server's files by moves, without space, undoable until the new record exists. */
import { isUtf8 } from "node:buffer"
import type { Stats } from "node:fs"
import { basename, join } from "node:path"
import { Effect } from "effect"
import {
  entryPath,
  forEachEntry,
  type IoError,
  listFolder,
  listFolderSync,
  lstat,
  makeFolder,
  orMissing,
  removeTree,
  rename,
  syncFolder
} from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { unmountBelow } from "./mounts.ts"
import { makeFolderLike } from "./overlayTree.ts"
import { instanceFolder } from "./sharedFiles.ts"
import { readTreeRecord, TREE, TREE_NEXT, type TreeRecord, writeTreeRecord } from "./treeRecord.ts"

/** Whether an entry is the mark of overlayfs for a removed file of a lower layer. */
const isWhiteout = (stats: Stats) => stats.isCharacterDevice() && stats.rdev === 0

interface Bases {
  /** Unset if that base has no such folder. */
  readonly old: string | undefined
  readonly next: string | undefined
}

const folderIn = Effect.fnUntraced(function* (base: string | undefined, name: string) {
  if (base === undefined) return undefined
  const path = join(base, name)
  return (yield* lstat(path))?.isDirectory() ? path : undefined
})

/** Moves an entry whose name is not UTF-8, which no base has. */
const moveOther = Effect.fnUntraced(function* (name: Buffer, from: string, to: string) {
  const [source, target] = [entryPath(from, name), entryPath(to, name)]
  const stats = yield* lstat(source)
  if (stats !== undefined && !isWhiteout(stats)) yield* rename(source, target)
})

/** Moves the files that only the server has. Folders are recreated, because an old one may hide files of the base. */
const carry = (from: string, to: string, bases: Bases): Effect.Effect<void, IoError> => {
  const carryOne = Effect.fnUntraced(function* (name: string) {
    const [source, target] = [join(from, name), join(to, name)]
    const stats = yield* lstat(source)
    if (stats === undefined || isWhiteout(stats)) return
    const inNext = bases.next === undefined ? undefined : yield* lstat(join(bases.next, name))
    if (!stats.isDirectory()) {
      if (inNext === undefined) yield* rename(source, target)
      return
    }
    if (inNext !== undefined && !inNext.isDirectory()) return
    const old = yield* folderIn(bases.old, name)
    if (inNext === undefined && old === undefined) return yield* rename(source, target)
    yield* makeFolderLike(target, source)
    yield* carry(source, target, { old, next: yield* folderIn(bases.next, name) })
  })
  return forEachEntry(from, ({ name }) => (isUtf8(name) ? carryOne(String(name)) : moveOther(name, from, to)))
}

const undoCarry = (from: string, to: string): Effect.Effect<void, IoError> => {
  const undoOne = Effect.fnUntraced(function* (name: string) {
    const [source, target] = [join(from, name), join(to, name)]
    const there = yield* lstat(target)
    if (there?.isDirectory()) yield* undoCarry(source, target)
    else if (there === undefined) yield* rename(source, target)
  })
  return forEachEntry(from, ({ name }) => (isUtf8(name) ? undoOne(String(name)) : moveOther(name, from, to)))
}

const OLD = "tree.old"
/** Whether a layer is moved unchanged: nested overlays, and copies of their volumes. */
const movesWhole = (name: string) => /^(over|lower)\.\d+$/.test(name)

/** Completes a `tree.next` with a record, and undoes one without. Requires that nothing is mounted. */
export const recoverTree = Effect.fnUntraced(function* (folder: string) {
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
        const moved = join(next, "upper")
        if ((yield* lstat(moved)) !== undefined) yield* undoCarry(moved, join(tree, "upper"))
      }
      yield* removeTree(next)
    }
  }
  yield* removeTree(old)
})

export interface CarryOptions {
  readonly folder: string
  readonly record: TreeRecord
  readonly prepare: (tree: string) => Effect.Effect<void, IoError>
  /** The folders of the bases; the old one may be missing. */
  readonly oldBase: string
  readonly newBase: string
  /** The owner of the instance's files, unless the base's owner stays. */
  readonly owner: RunUser | undefined
}

/** Replaces the base of an overlay instance. Requires that nothing is mounted. */
export const carryOver = Effect.fnUntraced(function* (options: CarryOptions) {
  const { folder, newBase, oldBase, owner, prepare, record } = options
  const [tree, next] = [join(folder, TREE), join(folder, TREE_NEXT)]
  yield* Effect.gen(function* () {
    yield* makeFolder(next)
    yield* prepare(next)
    yield* makeFolderLike(join(next, "upper"), newBase, owner)
    yield* makeFolder(join(next, "work"))
    const old = (yield* lstat(oldBase))?.isDirectory() ? oldBase : undefined
    // Without the old base, any folder may hide files, so all are examined.
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
      Effect.catch(recoverTree(folder), (error) => Effect.logWarning(`${folder}: ${error.message}`))
    ),
    Effect.uninterruptible
  )
  yield* recoverTree(folder)
})

const NEW_TREE = "tree.building"
const NEW_FILES = "files.building"
const OLD_TREE = "tree.old"
const OLD_FILES = "files.old"

/** Returns the folders for new files: the layers, and the instance folder or its mount point. */
export const building = (folder: string) => ({
  tree: join(folder, NEW_TREE),
  files: join(folder, NEW_FILES)
})

export const cleanFiles = Effect.fnUntraced(function* (folder: string, names?: ReadonlyArray<string>) {
  const there = names ?? (yield* listFolderSync(folder))
  for (const name of [NEW_TREE, NEW_FILES, OLD_TREE, OLD_FILES]) {
    if (!there.includes(name)) continue
    yield* unmountBelow(join(folder, name))
    yield* removeTree(join(folder, name))
  }
})

/** Completes or undoes an interrupted change of the files or layers. Returns the names that are then in the folder. */
export const recoverFiles = Effect.fnUntraced(function* (folder: string) {
  const names = yield* listFolderSync(folder)
  const files = instanceFolder(folder)
  const isSwapped = names.includes(OLD_FILES) && !names.includes(basename(files))
  if (isSwapped) yield* rename(join(folder, OLD_FILES), files)
  const isTreeChanged = names.includes(TREE_NEXT) || names.includes(OLD_TREE)
  if (isTreeChanged) {
    yield* unmountBelow(folder)
    yield* recoverTree(folder)
  }
  return isSwapped || isTreeChanged ? yield* listFolderSync(folder) : names
})

/** Whether a folder with these names has files of a server, which may be mounted. */
export const hasInstance = (names: ReadonlyArray<string>): boolean =>
  names.includes(basename(instanceFolder(""))) || names.includes(TREE)

/** Replaces the files by a tree (`layers`) or a plain folder. `replaces`: there may be files. */
export const swapIn = Effect.fnUntraced(function* (folder: string, layers: boolean, replaces = true) {
  const files = instanceFolder(folder)
  if (replaces) {
    yield* unmountBelow(folder)
    yield* rename(files, join(folder, OLD_FILES)).pipe(orMissing(undefined))
    yield* rename(join(folder, TREE), join(folder, OLD_TREE)).pipe(orMissing(undefined))
  }
  if (layers) {
    // For new files, mounting makes the folder.
    if (replaces) yield* makeFolder(files)
    yield* rename(join(folder, NEW_TREE), join(folder, TREE))
  } else yield* rename(join(folder, NEW_FILES), files)
})

export const discardFiles = Effect.fnUntraced(function* (folder: string) {
  yield* unmountBelow(folder)
  yield* removeTree(join(folder, TREE))
  yield* removeTree(instanceFolder(folder))
})
