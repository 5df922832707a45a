/** The owners of the files of instances and of their sources. */
import * as fs from "node:fs/promises"
import { dirname, join } from "node:path"
import { Effect } from "effect"
import { forEachEntry, type IoError, io, listFolder, lstat } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { chownVolume } from "./chownVolume.ts"
import { type OpenPath, output, run, type Shown, shownAs } from "./mounts.ts"
import { TREE } from "./treeRecord.ts"

const CONCURRENCY = 16

/**
 * Sets the owner of a folder with its contents, links themselves included; entries with that owner are skipped. No
 * other process may write in it meanwhile, because a path that is replaced by a link would be followed. `others`: paths
 * of shared mounts in it, which are skipped.
 */
export const chownTree = (
  path: string,
  user: RunUser,
  others: ReadonlySet<string> = new Set()
): Effect.Effect<void, IoError> =>
  Effect.gen(function* () {
    if (others.has(path)) return
    const stats = yield* lstat(path)
    if (stats === undefined) return
    if (stats.uid !== user.uid || stats.gid !== user.gid) {
      yield* io(`give ${path} to user ${user.uid}`, () => fs.lchown(path, user.uid, user.gid))
    }
    if (!stats.isDirectory()) return
    yield* forEachEntry(path, ({ name }) => chownTree(join(path, String(name)), user, others), {
      others: CONCURRENCY,
      folders: CONCURRENCY
    })
  })

/** Whether this process can change owners, which only root can. */
export const canChown = (): boolean => process.geteuid?.() === 0

const ROOT: RunUser = { uid: 0, gid: 0 }

/**
 * Returns the owner of a server's files: the user that the server runs as, else that of this service. Undefined: this
 * service cannot change owners.
 */
export const ownerFor = (user: RunUser | undefined): RunUser | undefined =>
  canChown() ? (user ?? ROOT) : undefined

/** Root can use files of any owner. */
const needs = (owner: RunUser): boolean => owner.uid !== 0

export const ownerOf = (path: string): Effect.Effect<RunUser, IoError> =>
  Effect.map(
    io(`stat ${path}`, () => fs.stat(path)),
    ({ gid, uid }) => ({ uid, gid })
  )

/** Returns how an open layer or volume must be shown to an owner. */
export const shownTo = (owner: RunUser | undefined, { stats }: OpenPath): Shown | undefined =>
  owner === undefined || !needs(owner)
    ? undefined
    : shownAs({ uid: Number(stats.uid), gid: Number(stats.gid) }, owner)

/** Makes a file or folder with the owner of its parent. */
export const makeLike = Effect.fnUntraced(function* (path: string, make: Effect.Effect<void, IoError>) {
  yield* make
  if (!canChown()) return
  const { gid, uid } = yield* ownerOf(dirname(path))
  yield* io(`give ${path}`, () => fs.lchown(path, uid, gid))
})

/**
 * Whether all entries of a folder have one owner, by find (findutils, Debian essential).
 *
 * @param which tests of find that select the entries
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
 * Sets the owner of folders that no other process can reach yet, with their contents. Runs chown (coreutils), which
 * takes a tenth of the time of calls from Node.
 */
export const chownAll = (folders: ReadonlyArray<string>, { gid, uid }: RunUser) =>
  run(`give ${folders[0]}`, [
    "chown",
    "--recursive",
    "--no-dereference",
    "-P",
    `${uid}:${gid}`,
    "--",
    ...folders
  ])

/** Sets the owner of a base folder's contents to that of the folder, so that mounts can show them as the server's. */
export const chownBase = Effect.fn("chownBase")(function* (folder: string) {
  if (!canChown()) return
  const owner = yield* ownerOf(folder)
  if (!(yield* isUniform(folder, owner))) yield* chownAll([folder], owner)
})

/** Returns the folders of an overlay instance with its own files, the top one first. */
export const layersOf = Effect.fnUntraced(function* (tree: string) {
  const names = yield* listFolder(tree)
  const parts = names.flatMap((name) =>
    name.startsWith("over.") ? [join(name, "upper")] : name.startsWith("lower.") ? [name] : []
  )
  return ["upper", ...parts].map((name) => join(tree, name))
})

const ownParts = Effect.fnUntraced(function* (folder: string, files: string) {
  const tree = join(folder, TREE)
  const paths = (yield* lstat(tree)) === undefined ? [files] : yield* layersOf(tree)
  const found = yield* Effect.forEach(paths, (path) => Effect.map(lstat(path), (stats) => ({ path, stats })))
  return found.flatMap(({ path, stats }) => (stats === undefined ? [] : [{ path, stats }]))
})

/** Returns the current owner of a server's files; undefined: there are none. */
export const keptOwner = Effect.fnUntraced(function* (folder: string, files: string) {
  const [part] = yield* ownParts(folder, files)
  if (part === undefined || !canChown()) return undefined
  const owner: RunUser = { uid: part.stats.uid, gid: part.stats.gid }
  return owner
})

export const foreignParts = Effect.fnUntraced(function* (folder: string, files: string, owner: RunUser) {
  const parts = yield* ownParts(folder, files)
  return parts.flatMap(({ path, stats }) => (stats.uid === owner.uid ? [] : [path]))
})

/** Excludes the marks of removed files in an overlay, which are devices of root. */
const NO_DEVICES = ["!", "-type", "c"]

/**
 * Marks the folders of a server's own files with an entry of another owner, for example a world that an operator copied
 * there as root, so that their owner is set again.
 */
export const markForeignFiles = Effect.fnUntraced(function* (folder: string, files: string, owner: RunUser) {
  if (!needs(owner)) return
  for (const { path, stats } of yield* ownParts(folder, files)) {
    if (stats.uid !== owner.uid || (yield* isUniform(path, owner, NO_DEVICES))) continue
    yield* io(`give ${path}`, () => fs.lchown(path, ROOT.uid, ROOT.gid))
  }
})

/**
 * Sets the owner of a server's files, without the layers below them. Requires that nothing is mounted and no process
 * runs. The top of each folder is changed last, so that an interrupted run is repeated.
 */
export const chownParts = (parts: ReadonlyArray<string>, owner: RunUser) =>
  Effect.forEach(
    parts,
    (part) =>
      needs(owner)
        ? chownVolume(part, owner)
        : // The owner root at the top is the mark; later files of root in it get the owner with all others.
          io(`give ${part}`, () => fs.lchown(part, owner.uid, owner.gid)),
    { discard: true }
  )
