/**
 * Access to instance files (spec 4.7). The process inside may change its folder at any moment, so paths are walked
 * part by part without links, and `/proc/self/fd/<n>/<name>` resolves `<name>` in the checked folder `<n>`. Linux
 * only.
 */
import { randomUUID } from "node:crypto"
import { type BigIntStats, constants, type Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { Data, Effect, Exit, Option, Result, Scope } from "effect"
import { pathParts } from "../../contract/domain/filePlan.ts"
import { inScope } from "../../shared/work/inScope.ts"
import { type IoError, io as ioOnce, orMissing, orOn } from "./fsio.ts"

/** Waits for a call that has begun: afterwards, the number of a closed folder may be that of another one. */
export const io = <A>(what: string, run: () => Promise<A>): Effect.Effect<A, IoError> =>
  Effect.uninterruptible(ioOnce(what, run))

/** The path leaves the folder, or has the wrong type: a link, pipe, device or folder. */
export class PathRefused extends Data.TaggedError("PathRefused")<{
  readonly path: string
  readonly reason: string
}> {}

export class FileTooLarge extends Data.TaggedError("FileTooLarge")<{
  readonly path: string
  readonly maxBytes: number
}> {}

/** The name of a file that is being made. */
export const temporaryName = (): string => `.muster-${randomUUID()}.tmp`

const temporary = /^\.muster-[0-9a-f-]{36}\.tmp$/

/** Whether a file is being made, or was left by a daemon that was killed. */
export const isTemporary = (name: string): boolean => temporary.test(name)

export const PERMISSIONS = 0o777
/** Opens a folder, never through a link. */
export const FOLDER = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW
/** NONBLOCK: opening a pipe does not block; NOCTTY: a terminal does not become the controlling one. */
export const READ = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY
export const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW

/** Splits a relative path; refuses empty and absolute paths, `..` and invalid file names. */
export const partsOf = (path: string): Result.Result<ReadonlyArray<string>, PathRefused> =>
  Result.mapError(pathParts(path), (reason) => new PathRefused({ path, reason: `it ${reason}` }))

/** Names are bytes, not always UTF-8. */
export type Name = string | Buffer

/** Opens a file until the scope ends. @param path as in messages */
export const open = (path: string, real: Name, flags: number, mode?: number) =>
  inScope(
    io(path, () => fs.open(real, flags, mode)),
    (handle) =>
      Effect.catch(
        io(path, () => handle.close()),
        (error) => Effect.logWarning(`cannot close ${path}: ${error.code}`)
      )
  )

/** Returns the path of a name in an open folder. */
export const within = (folder: Pick<fs.FileHandle, "fd">, name: Name): Name =>
  typeof name === "string"
    ? `/proc/self/fd/${folder.fd}/${name}`
    : Buffer.concat([Buffer.from(`/proc/self/fd/${folder.fd}/`), name])

export const describe = (stats: Stats | BigIntStats): string => {
  if (stats.isSymbolicLink()) return "is a symbolic link"
  if (stats.isDirectory()) return "is a folder"
  if (stats.isFile()) return "is a file"
  if (stats.isFIFO()) return "is a pipe"
  return stats.isSocket() ? "is a socket" : "is a device"
}

/** Returns the `lstat` of a name in an open folder, if it exists. */
export const lstatIn = (path: string, folder: fs.FileHandle, name: Name) =>
  io(path, () => fs.lstat(within(folder, name))).pipe(
    Effect.map(Option.some),
    orMissing(Option.none<Stats>())
  )

/** Gives a new file or folder the owner of its folder, if this process is root. */
export const chownLike = (
  path: string,
  handle: fs.FileHandle,
  owner: { readonly uid: number; readonly gid: number }
) => (process.geteuid?.() === 0 ? io(path, () => handle.chown(owner.uid, owner.gid)) : Effect.void)

/** Opens a folder in an open one, never through a link; makes a missing one if `onMade` is given. */
export const enter = Effect.fnUntraced(function* (
  path: string,
  folder: fs.FileHandle,
  name: Name,
  onMade?: (folder: fs.FileHandle, name: Name) => void
): Effect.fn.Return<Option.Option<fs.FileHandle>, PathRefused | IoError, Scope.Scope> {
  const found = yield* lstatIn(path, folder, name)
  if (Option.isSome(found) && !found.value.isDirectory()) {
    return yield* new PathRefused({ path, reason: `\`${name}\` ${describe(found.value)}, not a folder` })
  }
  if (Option.isNone(found)) {
    if (onMade === undefined) return Option.none()
    yield* io(path, () => fs.mkdir(within(folder, name), 0o755)).pipe(
      Effect.tap(() => Effect.sync(() => onMade(folder, name))),
      orOn(undefined, "EEXIST")
    )
  }
  const opened = yield* open(path, within(folder, name), FOLDER).pipe(
    Effect.catchIf(
      (error) => error.code === "ELOOP" || error.code === "ENOTDIR" || error.code === "ENOENT",
      () => new PathRefused({ path, reason: `\`${name}\` changed while it was opened` })
    )
  )
  if (Option.isNone(found)) yield* chownLike(path, opened, yield* io(path, () => folder.stat()))
  return Option.some(opened)
})

/**
 * Opens a folder below an open one, part by part. Those on the way are closed again, so that a deep path costs no more open
 * files than another one. `onMade`: missing folders are made; the folder of the first one stays open.
 */
export const enterAll = Effect.fnUntraced(function* (
  path: string,
  root: fs.FileHandle,
  parts: ReadonlyArray<Name>,
  onMade?: (folder: fs.FileHandle, name: Name) => void
): Effect.fn.Return<Option.Option<fs.FileHandle>, PathRefused | IoError, Scope.Scope> {
  const scope = yield* Effect.scope
  let folder = root
  let leave: Effect.Effect<void> = Effect.void
  let isFirst = true
  for (const part of parts) {
    const own = yield* Scope.fork(scope)
    const made = (inside: fs.FileHandle, name: Name) => {
      if (isFirst) leave = Effect.void
      isFirst = false
      onMade?.(inside, name)
    }
    const entering = enter(path, folder, part, onMade === undefined ? undefined : made)
    const next = yield* Scope.provide(entering, own)
    if (Option.isNone(next)) return Option.none()
    yield* leave
    folder = next.value
    leave = Scope.close(own, Exit.void)
  }
  return Option.some(folder)
})

/** Opens a folder that may be reached through links. */
export const openRoot = (root: string) => open(root, root, constants.O_RDONLY | constants.O_DIRECTORY)

/** Opens the folder of a file. `root` may be reached through links; the path below it may not. */
const locate = Effect.fnUntraced(function* (root: string, path: string, create: boolean) {
  const parts = yield* Effect.fromResult(partsOf(path))
  const name = parts.at(-1) ?? ""
  const top = yield* openRoot(root)
  const folder = yield* enterAll(path, top, parts.slice(0, -1), create ? () => {} : undefined)
  return Option.map(folder, (folder) => ({ folder, name }))
})

const refuseUnlessFile = (path: string, stats: Stats | BigIntStats): Effect.Effect<void, PathRefused> =>
  stats.isFile() ? Effect.void : new PathRefused({ path, reason: `it ${describe(stats)}, not a file` })

/** Reads to the end of the file, and at most one byte beyond `maxBytes`, because the file may grow meanwhile. */
const readAll = Effect.fnUntraced(function* (path: string, handle: fs.FileHandle, maxBytes: number) {
  const chunks: Array<Buffer> = []
  let length = 0
  while (length <= maxBytes) {
    const chunk = Buffer.allocUnsafe(Math.min(64 * 1024, maxBytes + 1 - length))
    const { bytesRead } = yield* io(path, () => handle.read(chunk, 0, chunk.length, null))
    if (bytesRead === 0) return Buffer.concat(chunks)
    chunks.push(chunk.subarray(0, bytesRead))
    length += bytesRead
  }
  return yield* new FileTooLarge({ path, maxBytes: maxBytes })
})

/** Opens a file of an open folder for reading, never a link, pipe or device; nothing if it is missing. */
export const openFileIn = Effect.fnUntraced(function* (path: string, folder: fs.FileHandle, name: Name) {
  // checked before it is opened: opening a device may have side effects
  const found = yield* lstatIn(path, folder, name)
  if (Option.isNone(found)) return Option.none<fs.FileHandle>()
  yield* refuseUnlessFile(path, found.value)
  const handle = yield* open(path, within(folder, name), READ).pipe(
    Effect.catchIf(
      (error) => error.code === "ELOOP" || error.code === "ENXIO" || error.code === "ENOENT",
      () => new PathRefused({ path, reason: "it changed while it was opened" })
    )
  )
  yield* refuseUnlessFile(path, yield* io(path, () => handle.stat()))
  return Option.some(handle)
})

export const readFileInside = Effect.fn("readFileInside")(function* (
  root: string,
  path: string,
  maxBytes: number
) {
  const at = yield* locate(root, path, false)
  if (Option.isNone(at)) return Option.none<Buffer>()
  const file = yield* openFileIn(path, at.value.folder, at.value.name)
  if (Option.isNone(file)) return Option.none<Buffer>()
  const handle = file.value
  const stats = yield* io(path, () => handle.stat())
  if (stats.size > maxBytes) return yield* new FileTooLarge({ path, maxBytes: maxBytes })
  return Option.some(yield* readAll(path, handle, maxBytes))
}, Effect.scoped)

/** Writes all bytes to an open file. @param at the place of the first byte; null: where the last write ended */
export const writeAll = Effect.fnUntraced(function* (
  path: string,
  handle: fs.FileHandle,
  bytes: Uint8Array,
  at: number | null
) {
  for (let done = 0; done < bytes.length; ) {
    const from = done
    const place = at === null ? null : at + from
    const { bytesWritten } = yield* io(path, () => handle.write(bytes, from, bytes.length - from, place))
    done += bytesWritten
  }
})

/** As {@link writeAll}, of several pieces after the end of the file so far. */
export const writeAllOf = Effect.fnUntraced(function* (
  path: string,
  handle: fs.FileHandle,
  pieces: ReadonlyArray<Uint8Array>
) {
  let { bytesWritten } = yield* io(path, () => handle.writev(pieces))
  for (const piece of pieces) {
    if (bytesWritten < piece.length) yield* writeAll(path, handle, piece.subarray(bytesWritten), null)
    bytesWritten = Math.max(0, bytesWritten - piece.length)
  }
})

/** The new content of a file, and its permission bits if they differ from the old ones. */
interface Replacement {
  readonly mode?: number
  readonly fill: (handle: fs.FileHandle) => Effect.Effect<void, IoError>
  readonly isDone?: (old: Stats) => boolean
}

const replaceInside = Effect.fnUntraced(function* (root: string, path: string, by: Replacement) {
  const at = yield* locate(root, path, true)
  // `create` is set: the folder exists
  if (Option.isNone(at)) return yield* new PathRefused({ path, reason: "its folder cannot be made" })
  const { folder, name } = at.value
  const old = yield* lstatIn(path, folder, name)
  if (Option.isSome(old)) yield* refuseUnlessFile(path, old.value)
  if (Option.isSome(old) && by.isDone?.(old.value) === true) return
  const owner = Option.isSome(old) ? old.value : yield* io(path, () => folder.stat())
  const mode = by.mode ?? (Option.isSome(old) ? old.value.mode & PERMISSIONS : 0o644)
  const aside = within(folder, temporaryName())
  const handle = yield* open(path, aside, CREATE, 0o600)
  yield* Effect.gen(function* () {
    yield* by.fill(handle)
    yield* chownLike(path, handle, owner)
    yield* io(path, () => handle.chmod(mode))
    yield* io(path, () => handle.datasync())
    yield* io(path, () => fs.rename(aside, within(folder, name)))
  }).pipe(
    Effect.onError(() =>
      io(path, () => fs.unlink(aside)).pipe(
        orMissing(undefined),
        Effect.catch(({ code }) => Effect.logWarning(`cannot remove the temporary file of ${path}: ${code}`))
      )
    ),
    Effect.uninterruptible
  )
}, Effect.scoped)

/**
 * Writes `path` below `root` atomically with missing folders (0755). The old permission bits and owner stay (default:
 * 0644 and the folder's owner), and hard links keep the old contents.
 */
export const writeFileInside = Effect.fn("writeFileInside")((root: string, path: string, data: Uint8Array) =>
  replaceInside(root, path, { fill: (handle) => io(path, () => handle.writeFile(data)) })
)

/** {@link writeFileInside} from an open file with its mode and time. A file of the same size and time stays. */
export const copyFileInside = Effect.fn("copyFileInside")(function* (
  root: string,
  path: string,
  source: fs.FileHandle
) {
  const { atime, mode, mtime, mtimeMs, size } = yield* io(path, () => source.stat())
  yield* replaceInside(root, path, {
    mode: mode & PERMISSIONS,
    isDone: (old) => old.size === size && Math.abs(old.mtimeMs - mtimeMs) < 2,
    fill: (handle) =>
      Effect.andThen(
        io(path, () => handle.writeFile(source.createReadStream({ autoClose: false, start: 0 }))),
        io(path, () => handle.utimes(atime, mtime))
      )
  })
})

/** Removes the file or link at `path` below `root`. A folder is refused; a missing file is no error. */
export const removeFileInside = Effect.fn("removeFileInside")(function* (root: string, path: string) {
  const at = yield* locate(root, path, false)
  if (Option.isNone(at)) return
  const { folder, name } = at.value
  const found = yield* lstatIn(path, folder, name)
  if (Option.isNone(found)) return
  if (found.value.isDirectory()) return yield* new PathRefused({ path, reason: "it is a folder, not a file" })
  yield* io(path, () => fs.unlink(within(folder, name))).pipe(orMissing(undefined))
}, Effect.scoped)
