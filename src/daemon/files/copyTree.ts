import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { IoError, io, listFolder, lstat, openFile, orMissing, removeTree } from "../disk/fsio.ts"
import type { RunUser } from "../runtime/Runtime.ts"

/** Files of one folder that are copied at the same time. */
const WIDTH = 8

/** What is opened is never a link, nor waited for where it is a pipe; so what is looked at is what is read. */
const NOFOLLOW = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY
const FOLDER = NOFOLLOW | constants.O_DIRECTORY

/** Where a target is a link or of another kind it gives way; nothing is ever written through a link. */
const clear = Effect.fnUntraced(function* (target: string, folder: boolean) {
  const there = yield* lstat(target)
  if (there === undefined || (folder && there.isDirectory())) return there
  yield* removeTree(target)
  return undefined
})

const neither = (source: string) =>
  new IoError({ code: "EINVAL", message: `neither file nor folder nor link: ${source}` })

export interface CopyOptions {
  /** Files of the same size and time of change are left as they are, and what the source has not is removed. */
  readonly mirror?: boolean
  /** The owner of what is made; absent: the user of this service. */
  readonly owner?: RunUser | undefined
}

/** Bits with which a program runs as its owner or its group: no copy has them. */
const SET_ID = 0o6000

const give = (target: string, { owner }: CopyOptions) =>
  owner === undefined ? Effect.void : io(`give ${target}`, () => fs.lchown(target, owner.uid, owner.gid))

const copyFile = Effect.fnUntraced(function* (
  source: string,
  path: string,
  target: string,
  options: CopyOptions,
  flags: number
) {
  const { mirror } = options
  const file = yield* openFile(path, flags)
  const stats = yield* io(`look at ${source}`, () => file.stat())
  if (!stats.isFile()) return yield* neither(source)
  if (mirror === true) {
    const there = yield* lstat(target)
    if (there?.isFile() && there.size === stats.size && Math.abs(there.mtimeMs - stats.mtimeMs) < 2) return
  }
  yield* clear(target, false)
  // Shares the blocks where the file system can, copies inside the kernel where it cannot.
  yield* io(`copy ${source}`, () =>
    fs.copyFile(`/proc/self/fd/${file.fd}`, target, constants.COPYFILE_FICLONE)
  )
  yield* give(target, options)
  if ((stats.mode & SET_ID) !== 0) {
    yield* io(`set permissions of ${target}`, () => fs.chmod(target, stats.mode & ~SET_ID & 0o7777))
  }
  if (mirror === true) yield* io(`set times of ${target}`, () => fs.utimes(target, stats.atime, stats.mtime))
}, Effect.scoped)

/** `source` is what messages say, `path` where it is. */
const copyEntry = (
  source: string,
  path: string,
  target: string,
  options: CopyOptions,
  top: boolean
): Effect.Effect<void, IoError> =>
  Effect.gen(function* () {
    const stats = yield* io(`look at ${source}`, () => fs.lstat(path))
    if (stats.isSymbolicLink()) {
      const to = yield* io(`read link ${source}`, () => fs.readlink(path))
      yield* clear(target, false)
      yield* io(`create link ${target}`, () => fs.symlink(to, target))
      return yield* give(target, options)
    }
    if (stats.isFile()) return yield* copyFile(source, path, target, options, NOFOLLOW)
    if (!stats.isDirectory()) return yield* neither(source)
    const folder = yield* openFile(path, FOLDER)
    const inside = `/proc/self/fd/${folder.fd}`
    const there = yield* clear(target, true)
    if (there === undefined) yield* io(`create folder ${target}`, () => fs.mkdir(target, { mode: 0o700 }))
    const entries = yield* io(`read folder ${source}`, () => fs.readdir(inside, { withFileTypes: true }))
    if (options.mirror === true) {
      const names = new Set(entries.map((entry) => entry.name))
      for (const name of yield* listFolder(target)) {
        if (!names.has(name)) yield* removeTree(join(target, name))
      }
    }
    const copy = ({ name }: { readonly name: string }) =>
      copyEntry(join(source, name), `${inside}/${name}`, join(target, name), options, false)
    const [folders, others] = [
      entries.filter((entry) => entry.isDirectory()),
      entries.filter((entry) => !entry.isDirectory())
    ]
    yield* Effect.forEach(others, copy, { concurrency: WIDTH, discard: true })
    // Each is open while it is copied: at the same time only those at the top, so that open files stay few.
    yield* Effect.forEach(folders, copy, { concurrency: top ? WIDTH : 1, discard: true })
    yield* give(target, options)
    yield* io(`set permissions of ${target}`, () => fs.chmod(target, stats.mode & ~SET_ID & 0o7777))
  }).pipe(Effect.scoped)

/**
 * Copies a file or folder with its permissions but for set-id bits; links are copied as links. What is at the target already is kept
 * where the source has nothing of the name and replaced where it has. Pipes, sockets and devices are refused. The
 * source may be changed meanwhile: a link that takes a folder's place is never followed.
 */
export const copyTree = (source: string, target: string, options: CopyOptions = {}) =>
  copyEntry(source, source, target, options, true)

/** The same for a source that is open (see `openSource`); `shown` is what messages call it. */
export const copyOpened = (
  shown: string,
  source: { readonly handle: fs.FileHandle; readonly folder: boolean },
  target: string,
  options: CopyOptions = {}
): Effect.Effect<void, IoError> => {
  const path = `/proc/self/fd/${source.handle.fd}`
  return source.folder
    ? copyEntry(shown, `${path}/.`, target, options, true)
    : copyFile(shown, path, target, options, NOFOLLOW & ~constants.O_NOFOLLOW)
}

const gone = (error: IoError) => ["ENOENT", "ENOTDIR", "ELOOP"].includes(error.code)

/** Folders in each other that are measured: each is open while what is in it is measured. */
const DEEPEST = 128

/** What a tree takes on the disk. `unmeasured`: why it may be more; undefined: all of it was measured. */
export interface TreeSize {
  readonly bytes: number
  readonly unmeasured: string | undefined
}

/**
 * Measures a tree, links and other names of the same file counted once; what vanishes meanwhile counts 0. Names are
 * bytes: not all are UTF-8. `skip`: paths in it that are not looked at.
 */
export const treeSize = Effect.fnUntraced(function* (root: string, skip: ReadonlySet<string> = new Set()) {
  const seen = new Set<string>()
  let bytes = 0
  let unmeasured: string | undefined
  const walk = (shown: string, path: string | Buffer, depth: number): Effect.Effect<void, IoError> =>
    Effect.gen(function* () {
      if (depth > DEEPEST) {
        unmeasured = `its folders are nested more than ${DEEPEST} deep`
        return
      }
      const folder = yield* openFile(path, FOLDER)
      const inside = Buffer.from(`/proc/self/fd/${folder.fd}/`)
      const names = yield* io(`read folder ${shown}`, () => fs.readdir(inside, { encoding: "buffer" }))
      bytes += (yield* io(`look at ${shown}`, () => folder.stat())).blocks * 512
      const look = Effect.fnUntraced(function* (name: Buffer) {
        const at = Buffer.concat([inside, name])
        const stats = yield* io(`look at ${shown}`, () => fs.lstat(at)).pipe(orMissing(undefined))
        if (stats === undefined) return
        if (stats.isDirectory()) return name
        if (stats.nlink > 1) {
          const key = `${stats.dev}:${stats.ino}`
          if (seen.has(key)) return
          seen.add(key)
        }
        bytes += stats.blocks * 512
      })
      const folders = yield* Effect.forEach(names, look, { concurrency: WIDTH })
      for (const name of folders) {
        if (name === undefined) continue
        const next = join(shown, name.toString())
        if (!skip.has(next)) yield* walk(next, Buffer.concat([inside, name]), depth + 1)
      }
    }).pipe(
      Effect.scoped,
      Effect.catchIf(gone, () => Effect.void),
      // Only a server that runs as the user of the daemon can close a folder to it.
      Effect.catchIf(
        ({ code }) => code === "EACCES",
        () =>
          Effect.sync(() => {
            unmeasured = "one of its folders is closed to its owner"
          })
      )
    )
  yield* walk(root, root, 0)
  const size: TreeSize = { bytes, unmeasured }
  return size
})
