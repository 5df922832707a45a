/** The replacement of a server's files: new files are made in a separate folder, then renamed. */
import { basename, join } from "node:path"
import { Effect } from "effect"
import { listFolderSync, makeFolder, orMissing, removeTree, rename } from "../disk/fsio.ts"
import { recoverTree } from "./carryOver.ts"
import { unmountBelow } from "./mounts.ts"
import { instanceFolder } from "./presentFiles.ts"
import { TREE, TREE_NEXT } from "./treeRecord.ts"

const NEW_TREE = "tree.building"
const NEW_FILES = "files.building"
const OLD_TREE = "tree.old"
const OLD_FILES = "files.old"

/** Returns the folders for new files: the layers, and the instance folder or its mount point. */
export const building = (folder: string) => ({
  tree: join(folder, NEW_TREE),
  files: join(folder, NEW_FILES)
})

/** Removes the files of an interrupted replacement. `names`: those in the folder, if they are known. */
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

/**
 * Replaces the files by the new ones. `layers`: they are a tree, else a plain folder; `replaces`: whether there may be
 * files.
 */
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
