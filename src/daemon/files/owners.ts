/** Owners of the files of instances, and of what instances are made from. */
import * as fs from "node:fs/promises"
import { dirname, join } from "node:path"
import { Effect } from "effect"
import { type IoError, io, listFolder, lstat } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { chownVolume } from "./chownVolume.ts"
import { shownAs } from "./idmap.ts"
import { output, run } from "./mounts.ts"
import { TREE } from "./treeRecord.ts"

/** Only root can give files away. */
export const givesFiles = (): boolean => process.geteuid?.() === 0

const ROOT: RunUser = { uid: 0, gid: 0 }

/**
 * The user that the files of a server belong to: the one that the server runs as, else the user of this service.
 * Undefined where this service cannot give files away.
 */
export const ownerFor = (user: RunUser | undefined): RunUser | undefined =>
  givesFiles() ? (user ?? ROOT) : undefined

/** Root needs no file to be its own. */
const needs = (owner: RunUser): boolean => owner.uid !== 0

export const ownerOf = (path: string): Effect.Effect<RunUser, IoError> =>
  Effect.map(
    io(`look at ${path}`, () => fs.stat(path)),
    ({ gid, uid }) => ({ uid, gid })
  )

/** How the files of an open layer or volume have to be shown for an owner. */
export const shownTo = Effect.fnUntraced(function* (owner: RunUser | undefined, handle: fs.FileHandle) {
  if (owner === undefined || !needs(owner)) return undefined
  const { gid, uid } = yield* io("look at a layer", () => handle.stat())
  return shownAs({ uid, gid }, owner)
})

/** Makes a file or folder for the owner of the folder around it. */
export const makeLike = Effect.fnUntraced(function* (path: string, make: Effect.Effect<void, IoError>) {
  yield* make
  if (!givesFiles()) return
  const { gid, uid } = yield* ownerOf(dirname(path))
  yield* io(`give ${path}`, () => fs.lchown(path, uid, gid))
})

/**
 * Whether all entries of a folder belong to one owner. By find (findutils, Debian essential).
 *
 * @param which tests of find that an entry has to pass to count
 */
export const isUniform = (
  folder: string,
  { gid, uid }: RunUser,
  which: ReadonlyArray<string> = []
): Effect.Effect<boolean, IoError> => {
  const others = ["(", "!", "-uid", String(uid), "-o", "!", "-gid", String(gid), ")"]
  return Effect.map(
    output(`look through ${folder}`, ["find", folder, ...which, ...others, "-printf", ".", "-quit"]),
    (found) => found === ""
  )
}

/**
 * Gives folders that nobody else can reach yet, with all that is in them. By chown (coreutils), which takes a tenth of
 * the time that calls from here take.
 */
export const giveWhole = (folders: ReadonlyArray<string>, { gid, uid }: RunUser) =>
  run(`give ${folders[0]}`, [
    "chown",
    "--recursive",
    "--no-dereference",
    "-P",
    `${uid}:${gid}`,
    "--",
    ...folders
  ])

/** Gives all that is in a base folder to the owner of the folder: instances are shown its files as their own. */
export const settleBase = Effect.fn("settleBase")(function* (folder: string) {
  if (!givesFiles()) return
  const owner = yield* ownerOf(folder)
  if (!(yield* isUniform(folder, owner))) yield* giveWhole([folder], owner)
})

/** Folders of an overlay instance that hold files of its own, the first above all others. */
export const layersOf = Effect.fnUntraced(function* (tree: string) {
  const names = yield* listFolder(tree)
  const parts = names.flatMap((name) =>
    name.startsWith("over.") ? [join(name, "upper")] : name.startsWith("lower.") ? [name] : []
  )
  return ["upper", ...parts].map((name) => join(tree, name))
})

/** The folders with files of a server's own, and their owners. */
const ownParts = Effect.fnUntraced(function* (folder: string, files: string) {
  const tree = join(folder, TREE)
  const paths = (yield* lstat(tree)) === undefined ? [files] : yield* layersOf(tree)
  const found = yield* Effect.forEach(paths, (path) => Effect.map(lstat(path), (stats) => ({ path, stats })))
  return found.flatMap(({ path, stats }) => (stats === undefined ? [] : [{ path, stats }]))
})

/** The user that the files of a server belong to now; undefined where there are none. */
export const keptOwner = Effect.fnUntraced(function* (folder: string, files: string) {
  const [part] = yield* ownParts(folder, files)
  if (part === undefined || !givesFiles()) return undefined
  const owner: RunUser = { uid: part.stats.uid, gid: part.stats.gid }
  return owner
})

/** Folders with files of a server's own that belong to another user than the given one. */
export const foreignParts = Effect.fnUntraced(function* (folder: string, files: string, owner: RunUser) {
  const parts = yield* ownParts(folder, files)
  return parts.flatMap(({ path, stats }) => (stats.uid === owner.uid ? [] : [path]))
})

/** Deleted files of an overlay are devices of root. */
const NO_DEVICES = ["!", "-type", "c"]

/**
 * Marks the folders with files of a server's own in which an entry belongs to another user, such as a world that an
 * operator has copied there as root, so that they are given again.
 */
export const markStrays = Effect.fnUntraced(function* (folder: string, files: string, owner: RunUser) {
  if (!needs(owner)) return
  for (const { path, stats } of yield* ownParts(folder, files)) {
    if (stats.uid !== owner.uid || (yield* isUniform(path, owner, NO_DEVICES))) continue
    yield* io(`give ${path}`, () => fs.lchown(path, ROOT.uid, ROOT.gid))
  }
})

/**
 * Gives the files of a server to their owner; what is below them stays with its own. Nothing of the server may be
 * mounted, and no process of it may run. The top of each folder comes last, so that what was cut off is done again.
 */
export const giveParts = (parts: ReadonlyArray<string>, owner: RunUser) =>
  Effect.forEach(
    parts,
    (part) =>
      needs(owner)
        ? chownVolume(part, owner)
        : // Root takes the top only, as a mark: what root writes there is given away with all the rest.
          io(`give ${part}`, () => fs.lchown(part, owner.uid, owner.gid)),
    { discard: true }
  )
