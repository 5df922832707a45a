/**
 * Files of an instance, seen from the daemon (blueprints.md, last paragraph). The process inside may change its
 * folder at any moment, so a path is walked component by component without following links, and what is used is
 * the object that was checked: `/proc/self/fd/<n>/<name>` resolves `<name>` in the open folder `<n>`. Linux only.
 */
import { randomUUID } from "node:crypto"
import { constants, type Stats } from "node:fs"
import * as fs from "node:fs/promises"
import { Data, Effect, Option, Result, type Scope } from "effect"
import { pathParts } from "../../domain/filePath.ts"

/** The path leaves the folder, or is not what it has to be: a link, a pipe, a device, a folder. */
export class PathRefused extends Data.TaggedError("PathRefused")<{
  readonly path: string
  readonly reason: string
}> {}

/** The file has more than `max_bytes` bytes. */
export class FileTooLarge extends Data.TaggedError("FileTooLarge")<{
  readonly path: string
  readonly max_bytes: number
}> {}

/** The file system refused (no space, no permission, a broken disk); `code` is its errno name. */
export class FileFailed extends Data.TaggedError("FileFailed")<{
  readonly path: string
  readonly code: string
  readonly cause: unknown
}> {}

/** What a path inside a folder is; `size` in bytes, `mode` the permission bits. */
export interface StatInside {
  readonly type: "file" | "directory" | "other"
  readonly size: number
  readonly mode: number
  readonly uid: number
  readonly gid: number
}

const PERMISSIONS = 0o777
/** Opens a folder, and never what a link leads to. */
export const FOLDER = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW
/** NONBLOCK: opening a pipe returns at once; NOCTTY: a terminal does not become ours. */
const READ = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY
/** Creates a file; what exists already, a link too, is an error. */
export const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW

/** Parts of a relative path; refuses what is empty, absolute, has `..` or cannot be a file name. */
export const partsOf = (path: string): Result.Result<ReadonlyArray<string>, PathRefused> =>
  Result.mapError(pathParts(path), (reason) => new PathRefused({ path, reason: `it ${reason}` }))

const codeOf = (cause: unknown): string =>
  cause instanceof Error && "code" in cause && typeof cause.code === "string" ? cause.code : "UNKNOWN"

const attempt = <A>(path: string, run: () => Promise<A>): Effect.Effect<A, FileFailed> =>
  Effect.tryPromise({ try: run, catch: (cause) => new FileFailed({ path, code: codeOf(cause), cause }) })

const open = (path: string, real: string, flags: number, mode?: number) =>
  Effect.acquireRelease(
    attempt(path, () => fs.open(real, flags, mode)),
    (handle) =>
      Effect.catch(
        attempt(path, () => handle.close()),
        (error) => Effect.logWarning(`cannot close ${path}: ${error.code}`)
      )
  )

const ENOENT = (error: FileFailed) => error.code === "ENOENT"

/** Path of `name` in an open folder. */
const within = (folder: fs.FileHandle, name: string) => `/proc/self/fd/${folder.fd}/${name}`

const describe = (stats: Stats): string => {
  if (stats.isSymbolicLink()) return "is a symbolic link"
  if (stats.isDirectory()) return "is a folder"
  if (stats.isFile()) return "is a file"
  if (stats.isFIFO()) return "is a pipe"
  return stats.isSocket() ? "is a socket" : "is a device"
}

/** `lstat` of a name in an open folder; none where there is nothing. */
const look = (path: string, folder: fs.FileHandle, name: string) =>
  attempt(path, () => fs.lstat(within(folder, name))).pipe(
    Effect.map(Option.some),
    Effect.catchIf(ENOENT, () => Effect.succeed(Option.none()))
  )

/** A new file or folder belongs to whom its folder belongs to; only root may, and has to, give it away. */
const give = (path: string, handle: fs.FileHandle, owner: { readonly uid: number; readonly gid: number }) =>
  process.geteuid?.() === 0 ? attempt(path, () => handle.chown(owner.uid, owner.gid)) : Effect.void

const enter = Effect.fnUntraced(function* (
  path: string,
  folder: fs.FileHandle,
  name: string,
  create: boolean
): Effect.fn.Return<Option.Option<fs.FileHandle>, PathRefused | FileFailed, Scope.Scope> {
  const found = yield* look(path, folder, name)
  if (Option.isSome(found) && !found.value.isDirectory()) {
    return yield* new PathRefused({ path, reason: `\`${name}\` ${describe(found.value)}, not a folder` })
  }
  if (Option.isNone(found)) {
    if (!create) return Option.none()
    yield* attempt(path, () => fs.mkdir(within(folder, name), 0o755)).pipe(
      Effect.catchIf(
        (error) => error.code === "EEXIST",
        () => Effect.void
      )
    )
  }
  const opened = yield* open(path, within(folder, name), FOLDER).pipe(
    Effect.catchIf(
      (error) => error.code === "ELOOP" || error.code === "ENOTDIR" || error.code === "ENOENT",
      () => new PathRefused({ path, reason: `\`${name}\` changed while it was opened` })
    )
  )
  if (Option.isNone(found)) yield* give(path, opened, yield* attempt(path, () => folder.stat()))
  return Option.some(opened)
})

/** A file's place: its open folder and its name there; none where the folder is missing and not to be made. */
interface Place {
  readonly folder: fs.FileHandle
  readonly name: string
}

/** `root` is the daemon's own path and may itself be reached through links; everything below it may not. */
const place = Effect.fnUntraced(function* (
  root: string,
  path: string,
  create: boolean
): Effect.fn.Return<Option.Option<Place>, PathRefused | FileFailed, Scope.Scope> {
  const parts = yield* Effect.fromResult(partsOf(path))
  const name = parts.at(-1) ?? ""
  let folder = yield* open(root, root, constants.O_RDONLY | constants.O_DIRECTORY)
  for (const part of parts.slice(0, -1)) {
    const next = yield* enter(path, folder, part, create)
    if (Option.isNone(next)) return Option.none()
    folder = next.value
  }
  return Option.some({ folder, name })
})

const refuseUnlessFile = (path: string, stats: Stats): Effect.Effect<void, PathRefused> =>
  stats.isFile() ? Effect.void : new PathRefused({ path, reason: `it ${describe(stats)}, not a file` })

/** Reads to the end of the file, but no more than one byte beyond `maxBytes`: it may grow meanwhile. */
const readAll = Effect.fnUntraced(function* (path: string, handle: fs.FileHandle, maxBytes: number) {
  const chunks: Array<Buffer> = []
  let length = 0
  while (length <= maxBytes) {
    const chunk = Buffer.allocUnsafe(Math.min(64 * 1024, maxBytes + 1 - length))
    const { bytesRead } = yield* attempt(path, () => handle.read(chunk, 0, chunk.length, null))
    if (bytesRead === 0) return Buffer.concat(chunks)
    chunks.push(chunk.subarray(0, bytesRead))
    length += bytesRead
  }
  return yield* new FileTooLarge({ path, max_bytes: maxBytes })
})

/** What is at `path` below `root`; none where there is nothing. A link anywhere in the path is refused. */
export const statInside = Effect.fn("statInside")(function* (root: string, path: string) {
  const at = yield* place(root, path, false)
  if (Option.isNone(at)) return Option.none<StatInside>()
  const found = yield* look(path, at.value.folder, at.value.name)
  if (Option.isNone(found)) return Option.none<StatInside>()
  const stats = found.value
  if (stats.isSymbolicLink()) return yield* new PathRefused({ path, reason: "it is a symbolic link" })
  return Option.some<StatInside>({
    type: stats.isFile() ? "file" : stats.isDirectory() ? "directory" : "other",
    size: stats.size,
    mode: stats.mode & PERMISSIONS,
    uid: stats.uid,
    gid: stats.gid
  })
}, Effect.scoped)

/** Contents of the regular file at `path` below `root`; none where there is nothing. */
export const readFileInside = Effect.fn("readFileInside")(function* (
  root: string,
  path: string,
  maxBytes: number
) {
  const at = yield* place(root, path, false)
  if (Option.isNone(at)) return Option.none<Buffer>()
  const { folder, name } = at.value
  // looked at before it is opened: opening a device can have effects
  const found = yield* look(path, folder, name)
  if (Option.isNone(found)) return Option.none<Buffer>()
  yield* refuseUnlessFile(path, found.value)
  const handle = yield* open(path, within(folder, name), READ).pipe(
    Effect.catchIf(
      (error) => error.code === "ELOOP" || error.code === "ENXIO" || error.code === "ENOENT",
      () => new PathRefused({ path, reason: "it changed while it was opened" })
    )
  )
  const stats = yield* attempt(path, () => handle.stat())
  yield* refuseUnlessFile(path, stats)
  if (stats.size > maxBytes) return yield* new FileTooLarge({ path, max_bytes: maxBytes })
  return Option.some(yield* readAll(path, handle, maxBytes))
}, Effect.scoped)

/**
 * Writes `data` to `path` below `root`; makes missing folders (0755). A new file takes the old one's place in one
 * step and keeps its permission bits and owner (0644 and the folder's owner where there was none), so that readers
 * see the old or the new contents, and a file that is hard linked from elsewhere is left as it is there.
 */
export const writeFileInside = Effect.fn("writeFileInside")(function* (
  root: string,
  path: string,
  data: Uint8Array
) {
  const at = yield* place(root, path, true)
  // `create` is on: the folder is there
  if (Option.isNone(at)) return yield* new PathRefused({ path, reason: "its folder cannot be made" })
  const { folder, name } = at.value
  const old = yield* look(path, folder, name)
  if (Option.isSome(old)) yield* refuseUnlessFile(path, old.value)
  const owner = Option.isSome(old) ? old.value : yield* attempt(path, () => folder.stat())
  const mode = Option.isSome(old) ? old.value.mode & PERMISSIONS : 0o644
  const aside = within(folder, `.muster-${randomUUID()}.tmp`)
  const handle = yield* open(path, aside, CREATE, 0o600)
  yield* Effect.gen(function* () {
    yield* attempt(path, () => handle.writeFile(data))
    yield* give(path, handle, owner)
    yield* attempt(path, () => handle.chmod(mode))
    yield* attempt(path, () => handle.datasync())
    yield* attempt(path, () => fs.rename(aside, within(folder, name)))
  }).pipe(
    Effect.onError(() =>
      Effect.catch(
        attempt(path, () => fs.unlink(aside)),
        (error) =>
          ENOENT(error)
            ? Effect.void
            : Effect.logWarning(`cannot remove the temporary file of ${path}: ${error.code}`)
      )
    ),
    Effect.uninterruptible
  )
}, Effect.scoped)

/** Removes the file at `path` below `root`, or the link that stands there; a folder is refused, nothing is fine. */
export const removeFileInside = Effect.fn("removeFileInside")(function* (root: string, path: string) {
  const at = yield* place(root, path, false)
  if (Option.isNone(at)) return
  const { folder, name } = at.value
  const found = yield* look(path, folder, name)
  if (Option.isNone(found)) return
  if (found.value.isDirectory()) return yield* new PathRefused({ path, reason: "it is a folder, not a file" })
  yield* Effect.catchIf(
    attempt(path, () => fs.unlink(within(folder, name))),
    ENOENT,
    () => Effect.void
  )
}, Effect.scoped)
