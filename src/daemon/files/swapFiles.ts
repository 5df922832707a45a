/** Replaces the files of a server, or the layer with its own files, so that an interruption loses none of them. */
import type { Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { basename, join } from "node:path"
import { Effect } from "effect"
import {
  entryPath,
  forEachEntry,
  type IoError,
  io,
  listFolderSync,
  lstat,
  makeFolder,
  orMissing,
  readText,
  removeTree,
  rename
} from "../disk/fsio.ts"
import { writeAtomic } from "../disk/replaceFile.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { unmountBelow } from "./mounts.ts"
import { makeFolderLike } from "./overlayTree.ts"
import { instanceFolder } from "./sharedFiles.ts"
import { TREE } from "./treeRecord.ts"

const NEW_TREE = "tree.building"
const NEW_FILES = "files.building"
const OLD_TREE = "tree.old"
const OLD_FILES = "files.old"
/** Says that files made aside are complete. Its text is the next one of {@link PLACED}. Until it is gone, they go into place. */
const READY = "files.ready"
/** The last tasks whose files went into place, newest first: a caller may ask about one of several. */
const PLACED = "files.placed"
const MOST_PLACED = 20
/** Says that a part of a backup is complete beside the files. Until it is gone, the part goes into place. */
export const PART = "part.ready"
/** The folder with the records of unfinished writes. */
export const WRITES = "writes"
const UPPER = "upper"
const NEW_UPPER = "upper.building"
const OLD_UPPER = "upper.old"

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

/** Undoes an interrupted replacement of the files or of the layer. Returns the names that are then in the folder. */
export const recoverFiles = Effect.fnUntraced(function* (folder: string) {
  const names = yield* listFolderSync(folder)
  const files = instanceFolder(folder)
  if (names.includes(READY)) {
    yield* placeReady(folder)
    yield* endReady(folder)
    return yield* listFolderSync(folder)
  }
  if (names.includes(TREE)) yield* recoverUpper(join(folder, TREE))
  if (!names.includes(OLD_FILES) || names.includes(basename(files))) return names
  yield* rename(join(folder, OLD_FILES), files)
  return yield* listFolderSync(folder)
})

const recoverUpper = Effect.fnUntraced(function* (tree: string) {
  const names = yield* listFolderSync(tree)
  if (names.includes(OLD_UPPER) && !names.includes(UPPER)) {
    yield* rename(join(tree, OLD_UPPER), join(tree, UPPER))
  }
  for (const name of [NEW_UPPER, OLD_UPPER]) {
    if (names.includes(name)) yield* removeTree(join(tree, name))
  }
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

/** Whether files made aside are complete, so that {@link markReady} can be called. */
export const isBuilt = Effect.fnUntraced(function* (folder: string) {
  const names = yield* listFolderSync(folder)
  return names.includes(NEW_TREE) || names.includes(NEW_FILES)
})

const placedIn = (folder: string) =>
  readText(join(folder, PLACED)).pipe(
    orMissing(""),
    Effect.map((text) => text.split("\n").filter(Boolean))
  )

const noteIn = (name: string) =>
  Effect.fnUntraced(function* (folder: string, task: string) {
    const tasks = [task, ...(yield* placedIn(folder))].slice(0, MOST_PLACED)
    yield* writeAtomic(join(folder, name), tasks.join("\n"))
  })

/** Decides for the files made aside by a task: from here on, also a later daemon puts them in place. */
export const markReady = noteIn(READY)

/** Puts complete files in place of the old ones. Each step can be repeated after any of them. */
export const placeReady = Effect.fnUntraced(function* (folder: string) {
  const files = instanceFolder(folder)
  yield* unmountBelow(folder)
  const names = yield* listFolderSync(folder)
  const isLayered = names.includes(NEW_TREE)
  // The last step was made before.
  if (!isLayered && !names.includes(NEW_FILES)) return
  for (const [now, old] of [
    [basename(files), OLD_FILES],
    [TREE, OLD_TREE]
  ] as const)
    if (names.includes(now) && !names.includes(old)) yield* rename(join(folder, now), join(folder, old))
  if (!isLayered) return yield* rename(join(folder, NEW_FILES), files)
  yield* makeFolder(files)
  yield* rename(join(folder, NEW_TREE), join(folder, TREE))
})

/** Removes the old files, and records the task of those in place. */
export const endReady = Effect.fnUntraced(function* (folder: string) {
  yield* cleanFiles(folder)
  yield* rename(join(folder, READY), join(folder, PLACED))
})

export const notePlaced = noteIn(PLACED)

/** Returns what was recorded after the id of a task, if its files are in place. */
export const placedNote = (folder: string, task: string) =>
  Effect.map(placedIn(folder), (tasks) =>
    tasks.find((text) => text.split(" ")[0] === task)?.slice(task.length + 1)
  )

export const discardFiles = Effect.fnUntraced(function* (folder: string) {
  yield* unmountBelow(folder)
  yield* removeTree(join(folder, TREE))
  yield* removeTree(instanceFolder(folder))
})

/** Whether an entry is the mark of overlayfs for a removed file of a lower layer. */
const isWhiteout = (stats: Stats) => stats.isCharacterDevice() && stats.rdev === 0

/** Makes hard links to what is not in the base. Folders are made anew, because one of a layer may hide files below. */
const linkOwn = (
  own: string | Buffer,
  base: string | Buffer | undefined,
  target: string | Buffer
): Effect.Effect<void, IoError> =>
  forEachEntry(
    own,
    Effect.fnUntraced(function* ({ name }) {
      const [from, to] = [entryPath(own, name), entryPath(target, name)]
      const stats = yield* lstat(from)
      if (stats === undefined || isWhiteout(stats)) return
      const below = base === undefined ? undefined : entryPath(base, name)
      const there = below === undefined ? undefined : yield* lstat(below)
      if (!stats.isDirectory()) {
        if (there === undefined) yield* io(`link ${to}`, () => fs.link(from, to))
        return
      }
      if (there !== undefined && !there.isDirectory()) return
      yield* makeFolderLike(to, from)
      yield* linkOwn(from, there === undefined ? undefined : below, to)
      yield* io(`set times of ${to}`, () => fs.utimes(to, stats.atime, stats.mtime))
    }),
    { others: 16 }
  )

/**
 * Replaces the layer of the server by one without what is in the base too, between which `record` is written. Requires
 * that nothing is mounted.
 */
export const keepOwn = Effect.fnUntraced(function* (
  folder: string,
  base: string,
  owner: RunUser | undefined,
  record: Effect.Effect<void, IoError>
) {
  const tree = join(folder, TREE)
  const [upper, next] = [join(tree, UPPER), join(tree, NEW_UPPER)]
  yield* Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      yield* makeFolderLike(next, base, owner)
      yield* restore(linkOwn(upper, base, next))
      yield* record
      yield* rename(upper, join(tree, OLD_UPPER))
      yield* rename(next, upper)
    }).pipe(Effect.ensuring(Effect.ignore(recoverUpper(tree))))
  )
})
