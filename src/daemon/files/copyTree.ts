import { constants, type Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { entryPath, forEachEntry, IoError, io, lstat, openFile, orOn, removeTree } from "../disk/fsio.ts"
import { READ } from "../disk/safePath.ts"
import type { RunUser } from "../runtime/Runtime.ts"
import type { OpenPath } from "./mounts.ts"

const CONCURRENCY = 8

/** Names are bytes, because those of a server or its base need not be UTF-8. */
export type Path = string | Buffer

/** Never opens a link and never waits for a pipe, so that the checked object is the one that is read. */
const FOLDER = READ | constants.O_DIRECTORY

/** Removes a target that is a link or of another type; nothing is written through a link. */
const clear = Effect.fnUntraced(function* (target: Path, folder: boolean) {
  const there = yield* lstat(target)
  if (there === undefined || (folder && there.isDirectory())) return there
  yield* removeTree(target)
  return undefined
})

const neither = (source: string) =>
  new IoError({ code: "EINVAL", message: `not a file, folder or link: ${source}` })

export interface CopyOptions {
  /** Skips files with the same size and modification time, and removes files that the source lacks. */
  readonly mirror?: boolean
  readonly owner?: RunUser | undefined
}

/** The set-id bits, which no copy keeps. */
const SET_ID = 0o6000

const give = (target: Path, { owner }: CopyOptions) =>
  owner === undefined ? Effect.void : io(`give ${target}`, () => fs.lchown(target, owner.uid, owner.gid))

const copyFile = Effect.fnUntraced(function* (
  source: string,
  path: Path,
  target: Path,
  options: CopyOptions,
  flags: number
) {
  const { mirror } = options
  const file = yield* openFile(path, flags)
  const stats = yield* io(`stat ${source}`, () => file.stat())
  if (!stats.isFile()) return yield* neither(source)
  if (mirror === true) {
    const there = yield* lstat(target)
    if (there?.isFile() && there.size === stats.size && Math.abs(there.mtimeMs - stats.mtimeMs) < 2) return
  }
  yield* clear(target, false)
  // Shares blocks if the file system can; else the kernel copies.
  yield* io(`copy ${source}`, () =>
    fs.copyFile(`/proc/self/fd/${file.fd}`, target, constants.COPYFILE_FICLONE)
  )
  yield* give(target, options)
  if ((stats.mode & SET_ID) !== 0) {
    yield* io(`set permissions of ${target}`, () => fs.chmod(target, stats.mode & ~SET_ID & 0o7777))
  }
  if (mirror === true) yield* io(`set times of ${target}`, () => fs.utimes(target, stats.atime, stats.mtime))
}, Effect.scoped)

const copyEntry = (
  source: string,
  path: Path,
  target: Path,
  options: CopyOptions,
  top: boolean
): Effect.Effect<void, IoError> =>
  Effect.gen(function* () {
    const stats = yield* io(`stat ${source}`, () => fs.lstat(path))
    if (stats.isSymbolicLink()) {
      const to = yield* io(`read link ${source}`, () => fs.readlink(path, "buffer"))
      yield* clear(target, false)
      yield* io(`create link ${target}`, () => fs.symlink(to, target))
      return yield* give(target, options)
    }
    if (stats.isFile()) return yield* copyFile(source, path, target, options, READ)
    if (!stats.isDirectory()) return yield* neither(source)
    const folder = yield* openFile(path, FOLDER)
    const inside = `/proc/self/fd/${folder.fd}`
    const there = yield* clear(target, true)
    if (there === undefined) yield* io(`create folder ${target}`, () => fs.mkdir(target, { mode: 0o700 }))
    if (options.mirror === true) {
      yield* forEachEntry(target, ({ name }) =>
        Effect.flatMap(lstat(entryPath(inside, name)), (there) =>
          there === undefined ? removeTree(entryPath(target, name)) : Effect.void
        )
      )
    }
    yield* forEachEntry(
      inside,
      ({ name }) =>
        copyEntry(
          join(source, String(name)),
          entryPath(inside, name),
          entryPath(target, name),
          options,
          false
        ),
      // Folders stay open while they are copied; only the top level runs in parallel, which bounds open files.
      { others: CONCURRENCY, folders: top ? CONCURRENCY : 1 }
    )
    yield* give(target, options)
    yield* io(`set permissions of ${target}`, () => fs.chmod(target, stats.mode & ~SET_ID & 0o7777))
  }).pipe(Effect.scoped)

/** Copies a tree without set-id bits and without following links. Pipes, sockets and devices are refused. */
export const copyTree = (source: Path, target: Path, options: CopyOptions = {}) =>
  copyEntry(String(source), source, target, options, true)

/** Copies an open source (see `openSource`); `shown` is its name in messages. */
export const copyOpened = (
  shown: string,
  source: { readonly handle: OpenPath; readonly folder: boolean },
  target: string,
  options: CopyOptions = {}
): Effect.Effect<void, IoError> => {
  const path = `/proc/self/fd/${source.handle.fd}`
  return source.folder
    ? copyEntry(shown, `${path}/.`, target, options, true)
    : copyFile(shown, path, target, options, READ & ~constants.O_NOFOLLOW)
}

/** The deepest folder that is measured: each level stays open. */
const MAX_DEPTH = 128

/** The most entries that are measured, and the most files with several names among them, which are held in memory. */
const MAX_ENTRIES = 1_000_000
const MAX_LINKED = 100_000

/** The size of a tree on disk. `unmeasured` says why it may be larger, if it may. */
export interface TreeSize {
  readonly bytes: number
  readonly entries: number
  readonly unmeasured: string | undefined
}

/**
 * Measures a tree. Links and further names count once, removed entries 0. Names are bytes, not always UTF-8.
 * @param changedSince ms since the epoch: files that have not changed since then do not count
 */
export const treeSize = Effect.fnUntraced(function* (
  root: string,
  changedSince = 0,
  skip: ReadonlySet<string> = new Set()
) {
  const seen = new Set<string>()
  let bytes = 0
  let entries = 0
  let unmeasured: string | undefined
  const stop = (reason: string) =>
    Effect.suspend(() => {
      unmeasured = reason
      return Effect.fail("stopped" as const)
    })
  const count = (stats: Stats) => {
    if (stats.ctimeMs < changedSince) return Effect.void
    if (stats.nlink > 1) {
      const key = `${stats.dev}:${stats.ino}`
      if (seen.has(key)) return Effect.void
      if (seen.size >= MAX_LINKED) return stop(`more than ${MAX_LINKED} of its files have several names`)
      seen.add(key)
    }
    bytes += stats.blocks * 512
    return Effect.void
  }
  const walk = (
    shown: string,
    path: string | Buffer,
    depth: number
  ): Effect.Effect<void, IoError | "stopped"> =>
    Effect.gen(function* () {
      if (depth > MAX_DEPTH) {
        unmeasured = `its folders are nested more than ${MAX_DEPTH} deep`
        return
      }
      const folder = yield* openFile(path, FOLDER)
      const inside = Buffer.from(`/proc/self/fd/${folder.fd}/`)
      bytes += (yield* io(`stat ${shown}`, () => folder.stat())).blocks * 512
      yield* forEachEntry(
        inside,
        (entry) => {
          const at = Buffer.concat([inside, entry.name])
          entries++
          if (entries > MAX_ENTRIES) return stop(`it has more than ${MAX_ENTRIES} files and folders`)
          if (!entry.isDirectory()) {
            return Effect.flatMap(lstat(at), (stats) => (stats === undefined ? Effect.void : count(stats)))
          }
          const next = join(shown, String(entry.name))
          return skip.has(next) ? Effect.void : walk(next, at, depth + 1)
        },
        { others: CONCURRENCY }
      )
    }).pipe(
      Effect.scoped,
      orOn(undefined, "ENOENT", "ENOTDIR", "ELOOP"),
      // Only a server that runs as the user of the daemon can close a folder to it.
      Effect.catchIf(
        (error) => error !== "stopped" && error.code === "EACCES",
        () =>
          Effect.sync(() => {
            unmeasured = "one of its folders is closed to its owner"
          })
      )
    )
  yield* Effect.catchIf(
    walk(root, root, 0),
    (error) => error === "stopped",
    () => Effect.void
  )
  return { bytes, entries, unmeasured } satisfies TreeSize
})
