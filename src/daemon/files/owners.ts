/** The owners of the files of instances and of their sources. */

import { constants, type Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { dirname, join } from "node:path"
import { Effect } from "effect"
import {
  forEachEntry,
  type IoError,
  io,
  listFolder,
  lstat,
  mountsAt,
  openFile,
  orMissing
} from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import { type OpenPath, output, run, type Shown, shownAs } from "./mounts.ts"
import { TREE } from "./treeRecord.ts"

/** Opens a name without its contents (open(2), O_PATH): a link itself, a pipe without waiting. */
const NAME = 0o10000000 | constants.O_NOFOLLOW
const CONCURRENCY = 8

/** A file with several names: those found in the volume, and their total number. */
interface Names {
  met: number
  readonly first: string
}

/**
 * Sets an owner, the top last, so that an interrupted run is repeated. Servers may write meanwhile: no link is
 * followed, and a file with names outside keeps its owner.
 */
export const chownVolume = Effect.fn("chownVolume")(function* (path: string, user: RunUser) {
  // Only root can change owners, and only other users need it.
  if (process.geteuid?.() !== 0 || user.uid === 0) return
  const top = yield* lstat(path)
  if (top === undefined || top.uid === user.uid || !(top.isDirectory() || top.isFile())) return
  const mounted = new Set((yield* mountsAt(path)).map((mount) => mount.path))
  mounted.delete(path)
  const linked = new Map<string, Names>()

  const isMine = ({ gid, uid }: Stats) => uid === user.uid && gid === user.gid
  const chown = (shown: string, handle: fs.FileHandle) =>
    io(`give ${shown} to user ${user.uid}`, () => fs.chown(`/proc/self/fd/${handle.fd}`, user.uid, user.gid))

  const hasAllNames = (shown: string, { dev, ino, nlink }: Stats) => {
    if (nlink === 1) return true
    const key = `${dev}:${ino}`
    const names = linked.get(key) ?? { met: 0, first: shown }
    names.met += 1
    if (names.met < nlink) linked.set(key, names)
    else linked.delete(key)
    return names.met === nlink
  }

  const give = (shown: string, real: string): Effect.Effect<void, IoError> =>
    Effect.gen(function* () {
      const handle = yield* openFile(real, NAME)
      const stats = yield* io(`stat ${shown}`, () => handle.stat())
      if (stats.dev !== top.dev || mounted.has(shown)) return
      if (stats.isDirectory()) {
        const inside = `/proc/self/fd/${handle.fd}`
        yield* forEachEntry(inside, ({ name }) => give(join(shown, String(name)), `${inside}/${name}`), {
          others: CONCURRENCY,
          // Folders stay open while they are processed; only the top level runs in parallel, which bounds open files.
          folders: shown === path ? CONCURRENCY : 1
        })
        if (!isMine(stats)) yield* chown(shown, handle)
      } else if (stats.isCharacterDevice() || stats.isBlockDevice()) return
      else if (!isMine(stats) && hasAllNames(shown, stats)) yield* chown(shown, handle)
    }).pipe(
      Effect.scoped,
      // The entry was removed meanwhile.
      orMissing(undefined)
    )
  yield* give(path, path)
  const [left] = linked.values()
  if (left === undefined) return
  yield* Effect.logWarning(
    `${path}: ${linked.size === 1 ? "a file stays with its owner, since it has" : `${linked.size} files stay with their owners, since they have`} names outside of it, too: ${left.first}. If servers are to write it, put a copy there`
  )
})

/** Whether this process can change owners, which only root can. */
export const canChown = (): boolean => process.geteuid?.() === 0

const ROOT: RunUser = { uid: 0, gid: 0 }

/** Returns the owner of a server's files, the server's user or this service, if this service can change owners. */
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

export const makeLike = Effect.fnUntraced(function* (path: string, make: Effect.Effect<void, IoError>) {
  yield* make
  if (!canChown()) return
  const { gid, uid } = yield* ownerOf(dirname(path))
  yield* io(`give ${path}`, () => fs.lchown(path, uid, gid))
})

/** Whether all entries of a folder have one owner, by find (findutils). `which` selects the entries. */
export const isUniform = (
  folder: string,
  user: RunUser,
  which: ReadonlyArray<string> = []
): Effect.Effect<boolean, IoError> =>
  Effect.map(
    output(`look through ${folder}`, [
      "find",
      folder,
      ...which,
      ...notOwnedBy(user),
      "-printf",
      ".",
      "-quit"
    ]),
    (found) => found === ""
  )

const notOwnedBy = ({ gid, uid }: RunUser) => [
  "(",
  "!",
  "-uid",
  String(uid),
  "-o",
  "!",
  "-gid",
  String(gid),
  ")"
]

/**
 * Sets the owner of a tree except `others`, if it exists, by tools: Node's calls take ten times as long. No other process
 * may write there: a link in a path would be followed.
 */
export const chownTree = Effect.fnUntraced(function* (
  path: string,
  user: RunUser,
  others: ReadonlySet<string> = new Set()
) {
  if ((yield* lstat(path)) === undefined) return
  const pruned = [...others].flatMap((other) => ["-path", other.replace(/[\\*?[]/g, "\\$&"), "-prune", "-o"])
  const chown = ["chown", "--no-dereference", `${user.uid}:${user.gid}`, "--", "{}", "+"]
  yield* run(`give ${path} to user ${user.uid}`, [
    "find",
    path,
    ...pruned,
    ...notOwnedBy(user),
    "-exec",
    ...chown
  ])
})

/** Gives a base folder's contents the folder's owner, so that mounts can show them as the server's. */
export const chownBase = Effect.fn("chownBase")(function* (folder: string) {
  if (!canChown()) return
  yield* chownTree(folder, yield* ownerOf(folder))
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

export const keptOwner = Effect.fnUntraced(function* (folder: string, files: string) {
  const [part] = yield* ownParts(folder, files)
  if (part === undefined || !canChown()) return undefined
  return { uid: part.stats.uid, gid: part.stats.gid } satisfies RunUser
})

export const foreignParts = Effect.fnUntraced(function* (folder: string, files: string, owner: RunUser) {
  const parts = yield* ownParts(folder, files)
  return parts.flatMap(({ path, stats }) => (stats.uid === owner.uid ? [] : [path]))
})

/** Excludes the marks of removed files in an overlay, which are devices of root. */
const NO_DEVICES = ["!", "-type", "c"]

/** Marks a server's folders that have an entry of another owner, such as a world that root copied there. */
export const markForeignFiles = Effect.fnUntraced(function* (folder: string, files: string, owner: RunUser) {
  if (!needs(owner)) return
  for (const { path, stats } of yield* ownParts(folder, files)) {
    if (stats.uid !== owner.uid || (yield* isUniform(path, owner, NO_DEVICES))) continue
    yield* io(`give ${path}`, () => fs.lchown(path, ROOT.uid, ROOT.gid))
  }
})

/**
 * Sets the owner of a server's own files, the top last, so that an interrupted run is repeated. Requires that nothing
 * is mounted and no process runs.
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
