/**
 * Calls on the file system with typed errors, for all other folders. Imports `helper` only. Read first: this file,
 * `safePath.ts` (paths that a server may change), `replaceFile.ts` (atomic writes).
 */
import { randomUUID } from "node:crypto"
import type { Dir, Dirent, Stats } from "node:fs"
import * as sync from "node:fs"
import * as fs from "node:fs/promises"
import { Array as Arr, Data, Effect, Result } from "effect"
import { FULL_BELOW } from "../../shared/work/diskSpace.ts"
import { inScope } from "../../shared/work/inScope.ts"
import { repeatable } from "../helper/Helper.ts"
import { below, MOUNT_TABLE, parseMountTable } from "./mountTable.ts"

/** Bytes of a large file between two writes to the disk, so that the last one does not take long. */
export const FLUSH_INTERVAL = 64 * 1024 * 1024

/** A failed file operation with the system code, and the next step unless the code determines it. */
export class IoError extends Data.TaggedError("IoError")<{
  readonly code: string
  readonly message: string
  readonly next?: string
}> {}

const meanings: Readonly<Record<string, string>> = {
  ENOSPC: "disk full",
  EDQUOT: "disk quota exceeded",
  EACCES: "permission denied",
  EPERM: "operation not permitted",
  ENOENT: "no such file or folder",
  EMFILE: "too many open files",
  EROFS: "the file system is read-only"
}

export const meaningOf = (code: string): string | undefined => meanings[code]

const textOf = (cause: unknown, key: string): string | undefined => {
  if (typeof cause !== "object" || cause === null) return undefined
  const value: unknown = Reflect.get(cause, key)
  return typeof value === "string" ? value : undefined
}

/** Node.js has no name for these, and different ones in calls that wait and in others. */
const errnoCodes: ReadonlyMap<unknown, string> = new Map([[-122, "EDQUOT"]])

/** Returns the system code of an error, e.g. `ENOENT`; `UNKNOWN` without one. */
export const errorCode = (cause: unknown): string => {
  const known =
    typeof cause === "object" && cause !== null ? errnoCodes.get(Reflect.get(cause, "errno")) : undefined
  return known ?? textOf(cause, "code") ?? "UNKNOWN"
}

/** Converts an error to an {@link IoError} with the message `<what>: <meaning>`. */
export const toIoError = (what: string, cause: unknown): IoError => {
  const code = errorCode(cause)
  return new IoError({
    code,
    message: `${what}: ${meaningOf(code) ?? textOf(cause, "message") ?? String(cause)}`
  })
}

/** Wraps a promise of node:fs; `what` names the operation in messages. */
export const io = <A>(what: string, run: () => Promise<A>): Effect.Effect<A, IoError> =>
  Effect.tryPromise({ try: run, catch: (cause) => toIoError(what, cause) })

/**
 * Wraps a synchronous call that must not interleave, or on a small file: a tenth of the time. It never waits for a
 * disk.
 */
export const ioSync = <A>(what: string, run: () => A): Effect.Effect<A, IoError> =>
  Effect.try({ try: run, catch: (cause) => toIoError(what, cause) })

/** Replaces the failures with some system codes by a value. */
export const orOn =
  <B>(fallback: B, ...codes: ReadonlyArray<string>) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A | B, E, R> =>
    Effect.catchIf(
      self,
      (error) => error instanceof IoError && codes.includes(error.code),
      () => Effect.succeed(fallback)
    )

export const orMissing = <B>(fallback: B) => orOn(fallback, "ENOENT")

export const orWarn = <A, E extends { readonly message: string }, R>(self: Effect.Effect<A, E, R>) =>
  Effect.catch(self, (error) => Effect.logWarning(error.message))

/** @param mode of the new folders, without the bits of the umask; default: all */
export const makeFolder = (path: string | Buffer, mode = 0o777): Effect.Effect<void, IoError> =>
  Effect.asVoid(io(`create folder ${path}`, () => fs.mkdir(path, { recursive: true, mode })))

const OTHERS = 0o007
export const PASSAGE = 0o711

/** Makes a folder that only its owner and group can enter. */
export const makeClosedFolder = (path: string): Effect.Effect<void, IoError> =>
  Effect.andThen(makeFolder(path), closeFolder(path))

/** Removes the permissions of other users on a folder. */
export const closeFolder = Effect.fnUntraced(function* (path: string) {
  const { mode } = yield* ioSync(`stat ${path}`, () => sync.statSync(path))
  if ((mode & OTHERS) !== 0)
    yield* ioSync(`close ${path}`, () => sync.chmodSync(path, mode & ~OTHERS & 0o7777))
})

/** Makes a folder that other users can pass through, but not list. */
export const makePassage = Effect.fnUntraced(function* (path: string) {
  const stats = yield* ioSync(`stat ${path}`, () => sync.statSync(path, { throwIfNoEntry: false }))
  if (stats === undefined) yield* makeFolder(path)
  const { mode } = stats ?? (yield* ioSync(`stat ${path}`, () => sync.statSync(path)))
  if ((mode & 0o7777) !== PASSAGE) yield* ioSync(`close ${path}`, () => sync.chmodSync(path, PASSAGE))
})

export const mountTable = io("read the mount table", () => fs.readFile(MOUNT_TABLE, "latin1")).pipe(
  Effect.map(parseMountTable)
)

/** Returns mounts with those at and below a path. The helper selects them: with many servers, the table is long. */
const mountsNear = Effect.fnUntraced(function* (real: string) {
  // Bytes that are not UTF-8 are damaged in `real`.
  const found = real.includes("\uFFFD")
    ? undefined
    : yield* Effect.orElseSucceed(repeatable("mounts", [real]), () => undefined)
  return found?.code === 0 ? parseMountTable(found.output.toString("latin1")) : yield* mountTable
})

/** Returns the mounts at and below a folder, in order of mounting, or none without the folder. */
export const mountsAt = Effect.fnUntraced(function* (path: string) {
  const real = yield* io(`stat ${path}`, () => fs.realpath(path)).pipe(orMissing(undefined))
  return real === undefined ? [] : below(real, yield* mountsNear(real))
})

/** Entries of a folder that are in memory at a time. */
const BATCH = 1000
/** Names that are looked at before other work gets its turn. */
const AT_ONCE = 100

/** Runs an effect for each entry, files before folders in each {@link BATCH}: folders may have millions of files. */
export const forEachEntry = <E, R = never>(
  path: string | Buffer,
  use: (entry: Dirent<Buffer>) => Effect.Effect<unknown, E, R>,
  { folders = 1, others = 1 }: { readonly folders?: number; readonly others?: number } = {}
): Effect.Effect<void, E | IoError, R> =>
  inBatches(path, BYTES, (dir) =>
    Effect.gen(function* () {
      const batch = yield* Effect.uninterruptible(nextEntries(dir, path))
      const [files, inner] = Arr.partition(batch, (entry) =>
        entry.isDirectory() ? Result.fail(entry) : Result.succeed(entry)
      )
      yield* Effect.forEach(files, use, { concurrency: others, discard: true })
      yield* Effect.forEach(inner, use, { concurrency: folders, discard: true })
      return batch.length
    })
  )

// the types of Node.js do not have the encoding `buffer` of readdir, which opendir takes as well
const BYTES = "buffer" as BufferEncoding

/** Opens a folder until the scope ends, to read it with {@link nextEntries}. @param bufferSize entries in memory */
export const openEntries = (path: string | Buffer, bufferSize: number, encoding = BYTES) =>
  inScope(
    io(`read folder ${path}`, () => fs.opendir(path, { encoding, bufferSize })),
    (dir) => Effect.ignore(io(`close folder ${path}`, () => dir.close()))
  )

/** Repeats an effect that reads the next {@link BATCH} of a folder and returns how many entries there were. */
const inBatches = <E, R>(
  path: string | Buffer,
  encoding: BufferEncoding,
  use: (dir: Dir) => Effect.Effect<number, E, R>
) =>
  Effect.scoped(
    Effect.flatMap(openEntries(path, BATCH, encoding), (dir) =>
      Effect.asVoid(Effect.repeat(use(dir), { while: (length) => length === BATCH }))
    )
  )

/**
 * Returns the next entries of an open folder: fewer than `most`, which the folder has been opened with, at its end. Only
 * the first one may wait for the disk, the others have been read with it.
 */
export const nextEntries = (dir: Dir, path: string | Buffer, most = BATCH) =>
  // the encoding of `openEntries` is `buffer`
  nextOf(dir, path, most) as unknown as Effect.Effect<ReadonlyArray<Dirent<Buffer>>, IoError>

const nextOf = (dir: Dir, path: string | Buffer, most: number) =>
  Effect.flatMap(
    io(`read folder ${path}`, () => dir.read()),
    (first) =>
      ioSync(`read folder ${path}`, () => {
        const batch: Array<Dirent> = []
        for (let entry = first; entry !== null; entry = batch.length < most ? dir.readSync() : null)
          batch.push(entry)
        return batch
      })
  )

/** Calls a function for each name in a folder; each byte is one character, which is a third of the work of buffers. */
export const forEachName = (path: string, use: (name: string) => void): Effect.Effect<void, IoError> =>
  inBatches(path, "latin1", (dir) =>
    Effect.gen(function* () {
      const batch = yield* Effect.uninterruptible(nextOf(dir, path, BATCH))
      for (const [index, { name }] of batch.entries()) {
        use(name)
        // A rule may take long for each name.
        if (index % AT_ONCE === AT_ONCE - 1) yield* Effect.yieldNow
      }
      return batch.length
    })
  )

export const isEmptyFolder = (path: string): Effect.Effect<boolean, IoError> =>
  Effect.flatMap(openEntries(path, 1), (dir) => nextEntries(dir, path, 1)).pipe(
    Effect.map((entries) => entries.length === 0),
    Effect.scoped,
    orMissing(true)
  )

/** The longest path at which names below still fit, in bytes; the system limit is 4,096. */
const LONG_PATH = 1024
const OWN = 0o700

const REMOVALS = 16
/** A process that writes meanwhile lets a folder have entries again. */
const MAX_ROUNDS = 4

/** Removes a hostile tree: opens closed folders, and moves up those too deep for a path. Names are bytes. */
const removeFolder = Effect.fnUntraced(function* (top: string | Buffer) {
  const first = Buffer.from(top)
  const tooDeep: Array<Buffer> = []
  const remove = (at: Buffer): Effect.Effect<void, IoError> =>
    Effect.gen(function* () {
      const use = (entry: Dirent<Buffer>) => {
        const path = entryPath(at, entry.name)
        if (!entry.isDirectory())
          return io(`remove ${path}`, () => fs.unlink(path)).pipe(orMissing(undefined))
        if (path.length <= first.length + LONG_PATH) return remove(path)
        const near = entryPath(first, Buffer.from(randomUUID()))
        tooDeep.push(near)
        return Effect.andThen(
          io(`open a folder in ${top}`, () => fs.chmod(path, OWN)),
          io(`move a folder up in ${top}`, () => fs.rename(path, near))
        )
      }
      const empty = forEachEntry(at, use, { others: REMOVALS })
      const opened = Effect.andThen(
        io(`open a folder in ${top}`, () => fs.chmod(at, OWN)),
        empty
      )
      for (let round = 1; ; round++) {
        yield* Effect.catchIf(
          empty,
          ({ code }) => code === "EACCES" || code === "EPERM",
          () => opened
        )
        while (at === first && tooDeep.length > 0) {
          const next = tooDeep.pop()
          if (next !== undefined) yield* remove(next)
        }
        const failed = yield* io(`remove ${at}`, () => fs.rmdir(at)).pipe(
          Effect.as(undefined),
          Effect.catchIf(({ code }) => code === "ENOTEMPTY" && round < MAX_ROUNDS, Effect.succeed)
        )
        if (failed === undefined) return
      }
    }).pipe(orMissing(undefined))
  yield* remove(first)
})

/** Removes a file or tree, if it exists, never through a link. A tree with a mount in it fails with `EBUSY`. */
export const removeTree = Effect.fnUntraced(function* (path: string | Buffer) {
  const stats = yield* lstat(path)
  if (stats === undefined) return
  if (stats.isDirectory()) {
    // Mounts have names of UTF-8.
    const [mounted] = yield* mountsAt(String(path))
    if (mounted !== undefined) {
      return yield* new IoError({ code: "EBUSY", message: `remove ${path}: ${mounted.path} is mounted` })
    }
  }
  yield* stats.isDirectory()
    ? removeFolder(path)
    : io(`remove ${path}`, () => fs.unlink(path)).pipe(orMissing(undefined))
})

export const rename = (from: string | Buffer, to: string | Buffer): Effect.Effect<void, IoError> =>
  ioSync(`rename ${from}`, () => sync.renameSync(from, to))

export const readText = (path: string): Effect.Effect<string, IoError> =>
  ioSync(`read ${path}`, () => sync.readFileSync(path, "utf8"))

/** Returns the names in a folder of this service, or none without it. See {@link forEachEntry} for others. */
export const listFolder = (path: string): Effect.Effect<ReadonlyArray<string>, IoError> =>
  io(`read folder ${path}`, () => fs.readdir(path)).pipe(orMissing<ReadonlyArray<string>>([]))

/** As {@link listFolder}, for folders of this service with few names; see {@link ioSync}. */
export const listFolderSync = (path: string): Effect.Effect<ReadonlyArray<string>, IoError> =>
  ioSync(`read folder ${path}`, () => sync.readdirSync(path)).pipe(orMissing<ReadonlyArray<string>>([]))

/** An entry of a folder as bytes, because its name need not be UTF-8. */
export const entryPath = (folder: string | Buffer, name: Buffer): Buffer =>
  Buffer.concat([Buffer.from(folder), Buffer.from("/"), name])

/** Returns the stats without following links, if the file exists. */
export const lstat = (path: string | Buffer): Effect.Effect<Stats | undefined, IoError> =>
  io(`stat ${path}`, () => fs.lstat(path)).pipe(orMissing(undefined))

/** As {@link lstat}, for single paths of this service; see {@link ioSync}. */
export const lstatSync = (path: string): Effect.Effect<Stats | undefined, IoError> =>
  ioSync(`stat ${path}`, () => sync.lstatSync(path, { throwIfNoEntry: false }))

export const openFile = (path: string | Buffer, flags: string | number, mode?: number) =>
  inScope(
    io(`open ${path}`, () => fs.open(path, flags, mode)),
    (file) => Effect.promise(() => file.close())
  )

/** Waits until an open file is on disk. @param flush of node:fs: `fsync`, or `fdatasync` for the data alone */
export const flushed = (what: string, fd: number, flush: typeof sync.fsync): Effect.Effect<void, IoError> =>
  Effect.uninterruptible(
    Effect.callback((resume) =>
      flush(fd, (error) => resume(error === null ? Effect.void : Effect.fail(toIoError(what, error))))
    )
  )

export const syncFolder = (path: string): Effect.Effect<void, IoError> =>
  Effect.acquireUseRelease(
    ioSync(`open ${path}`, () => sync.openSync(path, "r")),
    (fd) => flushed(`sync ${path}`, fd, sync.fsync),
    (fd) => Effect.sync(() => sync.closeSync(fd))
  )

/** Returns the bytes of the disk of a folder. What a file system keeps for root is not free: servers cannot use it. */
export const diskOf = (folder: string) =>
  Effect.map(
    io(`read the free space of ${folder}`, () => fs.statfs(folder)),
    ({ bavail, bfree, blocks, bsize }) => ({
      free: bavail * bsize,
      total: blocks * bsize,
      used: (blocks - bfree) * bsize
    })
  )

/** Whether the disk of a folder is full, for errors that do not say so. */
export const isDiskFull = (folder: string): Effect.Effect<boolean> =>
  Effect.match(diskOf(folder), { onSuccess: ({ free }) => free < FULL_BELOW, onFailure: () => false })
