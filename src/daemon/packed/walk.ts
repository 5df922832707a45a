/**
 * The walk through the files of a server for a backup: all of its own, whatever callers may see. Its calls block until the
 * disk answers, so the thread of `packWorker.ts` makes them.
 */
import * as fs from "node:fs"
import { Effect } from "effect"
import { childPath, shownName } from "../../contract/domain/Files.ts"
import type { FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import { pathPatterns } from "../access/patterns.ts"
import { unprocessable } from "../access/refused.ts"
import { MAX_PATH } from "../archives/ArchiveReader.ts"
import { IoError, ioSync, orMissing } from "../disk/fsio.ts"
import { FOLDER, isTemporary, type Name, PERMISSIONS, READ, within } from "../disk/safePath.ts"

/** Folders that are open at a time. */
export const MAX_DEPTH = 250
/** The longest path that a restore reads, in bytes. */
const LONGEST = MAX_PATH - "./".length
/** Entries of a folder that are read at a time. */
const BATCH = 1000
/** Bytes of two files that are compared at a time. */
const COMPARED = 256 * 1024

/** The base of files that are walked. */
export interface Below {
  readonly base: Name
  /** The layer of the server above the base. Without one, the files are copies of the base. */
  readonly upper?: Name | undefined
}

/** The files that are walked. */
export interface Walk {
  /** The open folder of the server. */
  readonly fd: number
  /** Paths of volumes and mounts, which are not entered. */
  readonly shared: ReadonlyArray<string>
  /** Paths of the folders of the server itself that are mounts. */
  readonly own: ReadonlyArray<string>
  /** Patterns of paths that are left out. */
  readonly exclude: ReadonlyArray<string>
  /** The base, if only what differs from it is visited. */
  readonly below?: Below | undefined
}

/** An entry of the walk. */
export interface Walked {
  readonly path: string
  /** The path as bytes, without a slash at its beginning; empty for the folder of the server. */
  readonly name: Buffer
  /** The path in the open folder above it. */
  readonly real: Name
  readonly stats: fs.Stats
}

export type WalkError = FileRefused | IoError

/** What a walk does with the entries that it finds. */
interface Visitor {
  readonly add: (entry: Walked) => Effect.Effect<void, WalkError>
  /** An entry is as the base has it. */
  readonly keep: (stats: fs.Stats) => void
  /** The base may have an entry at a path, and the server has none. */
  readonly remove: (path: string) => void
  /** An entry was replaced or removed while it was looked at. */
  readonly onChanged: () => void
}

type At = Pick<Walked, "name" | "path">

export const tooDeep = (path: string) =>
  unprocessable(
    `${path.slice(0, 200)}: folders are nested deeper than ${MAX_DEPTH}`,
    "Move what is in it up, or delete it."
  )

const gone = (path: string) => new IoError({ code: "ENOENT", message: path })

/** Whether an entry was replaced or removed while it was looked at. */
export const hasChanged = ({ code }: IoError): boolean =>
  code === "ENOENT" || code === "EINVAL" || code === "ELOOP" || code === "ENOTDIR" || code === "ENXIO"

const opened = <A, E>(
  path: string,
  open: () => number,
  use: (fd: number) => Effect.Effect<A, E>
): Effect.Effect<A, E | IoError> =>
  Effect.acquireUseRelease(ioSync(path, open), use, (fd) => Effect.sync(() => fs.closeSync(fd)))

/** Opens a file whose type was looked at before: opening a device may have side effects. */
export const withFile = <A>(
  { path, real }: Pick<Walked, "path" | "real">,
  use: (fd: number, stats: fs.Stats) => A
): Effect.Effect<A, IoError> =>
  Effect.flatten(
    ioSync(path, () => {
      const fd = fs.openSync(real, READ)
      try {
        const stats = fs.fstatSync(fd)
        return stats.isFile() ? Effect.succeed(use(fd, stats)) : Effect.fail(gone(path))
      } finally {
        fs.closeSync(fd)
      }
    })
  )

// The types of Node.js do not have the encoding `buffer`, with which names are buffers.
const OPEN_DIR = { encoding: "buffer" as BufferEncoding, bufferSize: BATCH }

/** Returns the names in a folder, each byte as one character. A file system may return a name twice that is renamed meanwhile. */
export const namesIn = (path: string, folder: Name) =>
  Effect.acquireUseRelease(
    ioSync(path, () => fs.opendirSync(folder, OPEN_DIR)),
    (dir) =>
      ioSync(path, () => {
        const names = new Set<string>()
        // the encoding of `OPEN_DIR` is `buffer`
        for (let entry = dir.readSync(); entry !== null; entry = dir.readSync())
          names.add((entry.name as unknown as Buffer).toString("latin1"))
        return names
      }),
    (dir) => Effect.sync(() => dir.closeSync())
  )

const found = (path: string, real: Name) => ioSync(path, () => fs.lstatSync(real)).pipe(orMissing(undefined))

/** Returns the names in a folder of the base. A base that is gone is no change of the server. */
const baseNames = (path: string, below: Below | undefined) =>
  below === undefined
    ? Effect.succeed([])
    : Effect.mapError(
        namesIn(path, below.base),
        ({ message }) => new IoError({ code: "EBASE", message: `the base of the server: ${message}` })
      )

/** Returns what lies below an entry of a folder. */
const belowOf = ({ base, upper }: Below, name: Buffer): Below => {
  const of = (folder: Name) => Buffer.concat([Buffer.from(folder), Buffer.from("/"), name])
  return { base: of(base), upper: upper === undefined ? undefined : of(upper) }
}

const sameBytes = (path: string, one: Name, other: Name) => {
  const [left, right] = [Buffer.alloc(COMPARED), Buffer.alloc(COMPARED)]
  const compare = (first: number, second: number): boolean => {
    for (let at = 0; ; ) {
      const read = fs.readSync(first, left, 0, COMPARED, at)
      if (read !== fs.readSync(second, right, 0, COMPARED, at)) return false
      if (!left.subarray(0, read).equals(right.subarray(0, read))) return false
      if (read === 0) return true
      at += read
    }
  }
  const openOther = (first: number) =>
    opened(
      path,
      () => fs.openSync(other, READ),
      (second) => ioSync(path, () => compare(first, second))
    )
  return opened(path, () => fs.openSync(one, READ), openOther)
}

const sameFolder = (one: fs.Stats, other: fs.Stats) =>
  (one.mode & PERMISSIONS) === (other.mode & PERMISSIONS) &&
  Math.floor(one.mtimeMs / 1000) === Math.floor(other.mtimeMs / 1000)

/** Whether a file or link is the one of the base: no layer above has it, or its bytes are the same. */
const isOfBase = ({ path, real, stats }: Walked, there: fs.Stats, { base, upper }: Below) => {
  const [one, other] = [stats, there].map((it) => [
    it.isFile(),
    it.isSymbolicLink(),
    it.size,
    it.mode & PERMISSIONS
  ])
  if (String(one) !== String(other) || (!stats.isFile() && !stats.isSymbolicLink()))
    return Effect.succeed(false)
  if (upper !== undefined)
    return stats.mtimeMs === there.mtimeMs
      ? Effect.map(found(path, upper), (own) => own === undefined)
      : Effect.succeed(false)
  if (stats.isFile()) return sameBytes(path, real, base)
  return ioSync(path, () => fs.readlinkSync(real, "buffer").equals(fs.readlinkSync(base, "buffer")))
}

/** Visits the entries of a server by name, folders before what is in them, and nothing that is excluded. Volumes and mounts are not entered. */
export const walkServer = Effect.fnUntraced(function* (
  walk: Walk,
  { add, keep, onChanged, remove }: Visitor
) {
  const isExcluded = pathPatterns(walk.exclude)
  const [own, shared] = [new Set(walk.own), new Set(walk.shared)]
  const stats = yield* ioSync("/", () => fs.fstatSync(walk.fd))

  const enterFolder = Effect.fnUntraced(function* (
    { name, path }: At,
    fd: number,
    depth: number,
    below: Below | undefined
  ) {
    const names = yield* namesIn(path, `/proc/self/fd/${fd}/.`)
    const lower = yield* baseNames(path, below)
    // A folder may have a million names: each set of them takes 40 MB.
    const all = below === undefined ? names : new Set([...names, ...lower])
    for (const text of [...all].sort()) {
      const bytes = Buffer.from(text, "latin1")
      const shown = shownName(bytes)
      const child = childPath(path, shown)
      const isLeftOut = isTemporary(shown) || shared.has(child) || isExcluded(child)
      const under = below === undefined ? undefined : belowOf(below, bytes)
      if (isLeftOut || !names.has(text)) {
        if (under !== undefined) remove(child)
        continue
      }
      const at = name.length === 0 ? bytes : Buffer.concat([name, Buffer.from("/"), bytes])
      yield* visit({ path: child, name: at }, within({ fd }, bytes), depth, under).pipe(
        Effect.catchIf(
          (error) => error._tag === "IoError" && hasChanged(error),
          () =>
            Effect.sync(() => {
              onChanged()
              if (under !== undefined) remove(child)
            })
        )
      )
    }
  })

  const visit = Effect.fnUntraced(function* (
    at: At,
    real: Name,
    depth: number,
    below: Below | undefined
  ): Effect.fn.Return<void, WalkError> {
    const { name, path } = at
    const entry: Walked = { ...at, real, stats: yield* ioSync(path, () => fs.lstatSync(real)) }
    const isFolder = entry.stats.isDirectory()
    const there = below === undefined ? undefined : yield* found(path, below.base)
    // Another mount is not of the server.
    const isMount = isFolder && entry.stats.dev !== stats.dev && !own.has(path)
    const isEntry = isFolder || entry.stats.isFile() || entry.stats.isSymbolicLink()
    // What lies over a folder of the base in a mount of its own, is packed as a whole.
    const goesOn = isFolder && there?.isDirectory() === true && !own.has(path)
    if (there !== undefined && (isMount || !isEntry || (isFolder && !goesOn))) remove(path)
    if (isMount) return
    if (name.length > LONGEST)
      return yield* unprocessable(
        `${path.slice(0, 200)}...: its path is longer than ${LONGEST} bytes`,
        "Move it up, or shorten the names of its folders."
      )
    const isKept =
      below === undefined || there === undefined
        ? false
        : isFolder
          ? goesOn && sameFolder(entry.stats, there)
          : yield* isOfBase(entry, there, below)
    if (isKept) keep(entry.stats)
    else yield* add(entry)
    if (!isFolder) return
    if (depth >= MAX_DEPTH) return yield* tooDeep(path)
    yield* opened(
      path,
      () => fs.openSync(real, FOLDER),
      (fd) => enterFolder(at, fd, depth + 1, goesOn ? below : undefined)
    )
  })

  const top: At = { path: "/", name: Buffer.alloc(0) }
  yield* add({ ...top, real: `/proc/self/fd/${walk.fd}/.`, stats })
  yield* enterFolder(top, walk.fd, 0, walk.below)
})
