import { randomUUID } from "node:crypto"
import type { Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { join } from "node:path"
import { Data, Effect } from "effect"
import { below, MOUNT_TABLE, parseMountTable } from "./mountTable.ts"

/**
 * A file operation that failed; `message` is short and fit for people, `code` is the system's, e.g. `ENOSPC`. `next`:
 * what to do about it, where that is not the same for all of the code (see remedy.ts).
 */
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

/** What a code of the system's means; undefined for those that people do not meet. */
export const meaningOf = (code: string): string | undefined => meanings[code]

const textOf = (cause: unknown, key: string): string | undefined => {
  if (typeof cause !== "object" || cause === null) return undefined
  const value: unknown = Reflect.get(cause, key)
  return typeof value === "string" ? value : undefined
}

/** Numbers of errors that Node has no name for. */
const unnamed: ReadonlyMap<unknown, string> = new Map([[-122, "EDQUOT"]])

/** The system's code of a foreign error, e.g. `ENOENT`; `UNKNOWN` where it has none. */
export const errorCode = (cause: unknown): string => {
  const code = textOf(cause, "code") ?? "UNKNOWN"
  if (code !== "UNKNOWN" || typeof cause !== "object" || cause === null) return code
  return unnamed.get(Reflect.get(cause, "errno")) ?? code
}

/** A foreign error as an {@link IoError}: `<what>: <meaning>`. */
export const toIoError = (what: string, cause: unknown): IoError => {
  const code = errorCode(cause)
  return new IoError({
    code,
    message: `${what}: ${meaningOf(code) ?? textOf(cause, "message") ?? String(cause)}`
  })
}

/** Wraps a promise of node:fs; `what` names the operation in people's words. */
export const io = <A>(what: string, run: () => Promise<A>): Effect.Effect<A, IoError> =>
  Effect.tryPromise({ try: run, catch: (cause) => toIoError(what, cause) })

/** Wraps a synchronous call that can throw, for what must not be interleaved. */
export const ioSync = <A>(what: string, run: () => A): Effect.Effect<A, IoError> =>
  Effect.try({ try: run, catch: (cause) => toIoError(what, cause) })

/** Turns the failure "there is no such file" into a value. */
export const orMissing =
  <B>(fallback: B) =>
  <A>(self: Effect.Effect<A, IoError>): Effect.Effect<A | B, IoError> =>
    Effect.catchTag(self, "IoError", (error) =>
      error.code === "ENOENT" ? Effect.succeed(fallback) : Effect.fail(error)
    )

export const makeFolder = (path: string): Effect.Effect<void, IoError> =>
  Effect.asVoid(io(`create folder ${path}`, () => fs.mkdir(path, { recursive: true })))

const OTHERS = 0o007
const PASSAGE = 0o711

/** Makes a folder that only its owner and its group can enter. */
export const makeClosedFolder = (path: string): Effect.Effect<void, IoError> =>
  Effect.andThen(makeFolder(path), closeFolder(path))

/** Lets nobody but its owner and its group into a folder. */
export const closeFolder = Effect.fnUntraced(function* (path: string) {
  const { mode } = yield* io(`look at ${path}`, () => fs.stat(path))
  if ((mode & OTHERS) !== 0) yield* io(`close ${path}`, () => fs.chmod(path, mode & ~OTHERS & 0o7777))
})

/** Makes a folder that other users can pass through, to what is theirs in it, but not look into. */
export const makePassage = Effect.fnUntraced(function* (path: string) {
  yield* makeFolder(path)
  const { mode } = yield* io(`look at ${path}`, () => fs.stat(path))
  if ((mode & 0o7777) !== PASSAGE) yield* io(`close ${path}`, () => fs.chmod(path, PASSAGE))
})

/** All that is mounted, in order of mounting. */
export const mountTable = io("read the mount table", () => fs.readFile(MOUNT_TABLE, "latin1")).pipe(
  Effect.map(parseMountTable)
)

/** The mounts at a folder and below it, in order of mounting; none where there is no such folder. */
export const mountsAt = Effect.fnUntraced(function* (path: string) {
  const real = yield* io(`look at ${path}`, () => fs.realpath(path)).pipe(orMissing(undefined))
  return real === undefined ? [] : below(real, yield* mountTable)
})

/** Bytes of a path that leave room for names below it; the system takes 4,096. */
const LONG = 1024
const OWN = 0o700

/**
 * Makes a tree removable that a hostile server has made: opens folders that are closed to their owner, and moves folders
 * up that lie deeper than any path reaches. Names are bytes: not all are UTF-8.
 */
const loosen = Effect.fnUntraced(function* (top: string) {
  const left = [Buffer.from(top)]
  for (let folder = left.pop(); folder !== undefined; folder = left.pop()) {
    const at = folder
    const { mode } = yield* io(`look at ${top}`, () => fs.lstat(at))
    if ((mode & OWN) !== OWN) yield* io(`open a folder in ${top}`, () => fs.chmod(at, OWN))
    if (at.length > top.length + LONG) {
      const near = Buffer.from(join(top, randomUUID()))
      yield* io(`move a folder up in ${top}`, () => fs.rename(at, near))
      left.push(near)
      continue
    }
    const entries = yield* io(`read a folder in ${top}`, () =>
      fs.readdir(at, { withFileTypes: true, encoding: "buffer" })
    )
    for (const entry of entries) {
      if (entry.isDirectory()) left.push(Buffer.concat([at, Buffer.from("/"), entry.name]))
    }
  }
})

const removeAll = (path: string): Effect.Effect<void, IoError> =>
  io(`remove ${path}`, () => fs.rm(path, { recursive: true, force: true, maxRetries: 3 }))

/**
 * Removes a file or a whole tree; what is not there is no error. Links are removed, never followed; a tree with
 * something mounted in it is left whole and `EBUSY`: what is mounted is somebody else's.
 */
export const removeTree = Effect.fnUntraced(function* (path: string) {
  const stats = yield* lstat(path)
  if (stats === undefined) return
  if (stats.isDirectory()) {
    const [mounted] = yield* mountsAt(path)
    if (mounted !== undefined) {
      return yield* new IoError({ code: "EBUSY", message: `remove ${path}: ${mounted.path} is a mount` })
    }
  }
  yield* Effect.catchIf(
    removeAll(path),
    ({ code }) => stats.isDirectory() && ["ENAMETOOLONG", "EACCES"].includes(code),
    () => Effect.andThen(loosen(path), removeAll(path))
  )
})

export const rename = (from: string, to: string): Effect.Effect<void, IoError> =>
  io(`rename ${from}`, () => fs.rename(from, to))

export const readText = (path: string): Effect.Effect<string, IoError> =>
  io(`read ${path}`, () => fs.readFile(path, "utf8"))

/** Names in a folder; empty when there is no such folder. */
export const listFolder = (path: string): Effect.Effect<ReadonlyArray<string>, IoError> =>
  io(`read folder ${path}`, () => fs.readdir(path)).pipe(orMissing<ReadonlyArray<string>>([]))

/** Without following links; undefined when there is nothing. */
export const lstat = (path: string): Effect.Effect<Stats | undefined, IoError> =>
  io(`look at ${path}`, () => fs.lstat(path)).pipe(orMissing(undefined))

/** An open file of node:fs, closed with the scope. */
export const openFile = (path: string | Buffer, flags: string | number, mode?: number) =>
  Effect.acquireRelease(
    io(`open ${path}`, () => fs.open(path, flags, mode)),
    (file) => Effect.promise(() => file.close())
  )

/**
 * Replaces a file so that a reader, also after a crash, sees the old text or the new one and nothing between. What
 * fails leaves nothing beside it.
 */
export const writeAtomic = Effect.fnUntraced(function* (path: string, text: string) {
  const aside = `${path}.tmp`
  yield* Effect.gen(function* () {
    const file = yield* openFile(aside, "w", 0o600)
    yield* io(`write ${path}`, () => file.writeFile(text))
    yield* io(`write ${path}`, () => file.datasync())
  }).pipe(
    Effect.scoped,
    Effect.andThen(rename(aside, path)),
    Effect.onError(() => Effect.ignore(io(`remove ${aside}`, () => fs.unlink(aside))))
  )
})

/** All that was done in a folder before is on disk afterwards. */
export const syncFolder = Effect.fnUntraced(function* (path: string) {
  const folder = yield* openFile(path, "r")
  yield* io(`sync ${path}`, () => folder.sync())
}, Effect.scoped)
