/** Random access to the files of one server (spec 10.6): open files, and changes of single entries as POSIX has them. */
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { Deferred, Effect, Exit, Fiber, Option, Scope } from "effect"
import { fileLimit } from "../../contract/domain/Limits.ts"
import type { DaemonRefused } from "../../contract/nodeApi/Daemon.ts"
import {
  type FileError,
  FileRefused,
  type FileSession,
  MOST_OPEN,
  type OpenFile
} from "../../contract/nodeApi/NodeFiles.ts"
import type { EntryChange, FileAttributes, OpenFlags, Space } from "../../contract/nodeApi/sessionFrames.ts"
import { isNoRoom } from "../disk/remedy.ts"
import {
  chownLike,
  describe,
  FOLDER,
  io,
  isTemporary,
  lstatIn,
  open,
  PathRefused,
  PERMISSIONS,
  within,
  writeAll
} from "../disk/safePath.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import type { Instance } from "../instances/Instance.ts"
import { applyChange, needEntry, type Scene } from "./changes.ts"
import { openEntriesOf } from "./entries.ts"
import { type AccessError, conflict, forbidden, noSuchPath, toFileError } from "./refused.ts"
import type { Located, Place, Site } from "./Site.ts"
import { refuseFixed } from "./trees.ts"

interface SessionParts {
  readonly instance: Instance
  readonly files: InstanceFiles["Service"]
  readonly whyClosed: () => DaemonRefused | undefined
  /** Runs one access, which work on the files interrupts. */
  readonly use: <A>(
    path: string,
    access: (scene: Scene) => Effect.Effect<A, AccessError, Scope.Scope>
  ) => Effect.Effect<A, FileError>
}

/** Bytes of room that an open file takes at a time, so that not every write looks at the limit. */
const ROOM_AT_ONCE = 1024 * 1024
/** Bytes of a block in `stat`. */
const BLOCK = 512

const tooManyOpen = new FileRefused({
  status: 409,
  detail: `the session has ${MOST_OPEN} open files`,
  hint: "Close files first."
})

const readOnly = (path: string) =>
  new FileRefused({
    status: 403,
    detail: `${path}: it is open for reading only`,
    hint: "Open the file for writing first."
  })

const closed = new FileRefused({ status: 409, detail: "the file is closed", hint: "Open it again." })

/** Clients send 0777 for new folders, and leave the rest to the umask of the server. */
const NEW_PERMISSIONS = PERMISSIONS & ~0o022

/** Opens a regular file of an open folder, also for writing. The owner of a new file is the owner of its folder. */
const openAt = Effect.fnUntraced(function* (
  { room, site }: Scene,
  place: Place,
  { folder, name }: Located,
  {
    flags,
    mode = 0o644,
    scope
  }: { readonly flags: OpenFlags; readonly mode?: number; readonly scope: Scope.Scope }
) {
  const { path } = place
  const access = flags.write ? (flags.read ? constants.O_RDWR : constants.O_WRONLY) : constants.O_RDONLY
  const safe = access | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY
  const openIn = (how: number, bits?: number) =>
    Scope.provide(open(path, within(folder, name), how, bits), scope).pipe(
      Effect.catchIf(
        (error) => error.code === "ELOOP" || error.code === "ENXIO",
        () => new PathRefused({ path, reason: "it changed while it was opened" })
      )
    )
  const found = yield* lstatIn(path, folder, name)
  if (Option.isNone(found)) {
    // A caller with the right to read makes no file.
    if (!flags.create || !flags.write) return yield* noSuchPath(path)
    yield* room.take(site, place, 0, 1)
    const handle = yield* openIn(safe | constants.O_CREAT | constants.O_EXCL, 0o600)
    yield* chownLike(path, handle, yield* io(path, () => folder.stat()))
    yield* io(path, () => handle.chmod(mode & NEW_PERMISSIONS))
    return handle
  }
  if (flags.create && flags.exclusive) return yield* conflict(path, "it exists")
  // Opening a device may have side effects.
  if (!found.value.isFile())
    return yield* new PathRefused({ path, reason: `it ${describe(found.value)}, not a file` })
  const handle = yield* openIn(safe)
  const stats = yield* io(path, () => handle.stat())
  if (!stats.isFile()) return yield* new PathRefused({ path, reason: `it ${describe(stats)}, not a file` })
  if (flags.write && stats.nlink > 1)
    return yield* forbidden(path, "it has several names, and would change under all of them")
  if (flags.write && flags.truncate) yield* io(path, () => handle.truncate(0))
  return handle
})

/** Checks the length of a file that gets a hole, from its end to `from`. @param length of the file with it */
const checkHole = Effect.fnUntraced(function* (
  { room, site }: Scene,
  place: Place,
  handle: fs.FileHandle,
  { from, length }: { readonly from: number; readonly length: number }
) {
  const { blocks, size } = yield* io(place.path, () => handle.stat())
  if (from > size) yield* room.holds(site, place, length - blocks * BLOCK)
})

/** Changes an open file or folder. */
const setOpen = Effect.fnUntraced(function* (
  scene: Scene,
  place: Place,
  handle: fs.FileHandle,
  { mode, modified, size }: FileAttributes
) {
  const { path } = place
  if (size !== undefined) {
    yield* checkHole(scene, place, handle, { from: size, length: size })
    yield* io(path, () => handle.truncate(size))
  }
  if (mode !== undefined) yield* io(path, () => handle.chmod(mode & PERMISSIONS))
  if (modified !== undefined) yield* io(path, () => handle.utimes(modified, modified))
})

interface Opened {
  readonly handle: fs.FileHandle
  readonly close: Effect.Effect<void>
  /** Whether the file was opened for writing, which the rules of the blueprint allowed. */
  readonly isWritten: boolean
}

const makeOpenFile = (scene: Scene, place: Place, { close, handle, isWritten }: Opened): OpenFile => {
  const { path } = place
  const { room, site } = scene
  let left = 0
  /** The end of the file, as far as it is known. */
  let known = 0
  /** Checks the hole that a write beyond the end leaves. */
  const reaches = Effect.fnUntraced(function* (offset: number, length: number) {
    if (offset > known) yield* checkHole(scene, place, handle, { from: offset, length: offset + length })
    known = Math.max(known, offset + length)
  })
  const taken = (bytes: number) =>
    Effect.suspend(() => {
      if (left >= bytes) {
        left -= bytes
        return Effect.void
      }
      return room.take(site, place, ROOM_AT_ONCE).pipe(
        Effect.tap(() =>
          Effect.sync(() => {
            left += ROOM_AT_ONCE - bytes
          })
        ),
        Effect.catchTag("FileRefused", () => room.take(site, place, bytes))
      )
    })
  const done = <A>(effect: Effect.Effect<A, AccessError>) =>
    Effect.mapError(effect, (error) =>
      error._tag === "IoError" && error.code === "EBADF" ? closed : toFileError(path)(error)
    )
  /** Set once a write found no room. Clients with many writes in flight may look at the last answer only. */
  let full: AccessError | undefined
  const unlessFull = Effect.suspend(() => (full === undefined ? Effect.void : Effect.fail(full)))
  const writeAt = (offset: number, bytes: Uint8Array) =>
    unlessFull.pipe(
      Effect.andThen(reaches(offset, bytes.length)),
      Effect.andThen(taken(bytes.length)),
      Effect.andThen(writeAll(path, handle, bytes, offset)),
      room.explained(site),
      Effect.andThen(unlessFull),
      Effect.tapError((error) =>
        Effect.sync(() => {
          const isFull =
            error._tag === "IoError" ? isNoRoom(error) : "status" in error && error.status === 507
          if (isFull) full = error
        })
      )
    )
  return {
    read: (offset, length) =>
      done(
        Effect.suspend(() => {
          const bytes = Buffer.allocUnsafe(length)
          return Effect.map(
            io(path, () => handle.read(bytes, 0, length, offset)),
            ({ bytesRead }) => bytes.subarray(0, bytesRead)
          )
        })
      ),
    write: (offset, bytes) => done(writeAt(offset, bytes)),
    stat: done(
      Effect.map(
        io(path, () => handle.stat()),
        ({ mode, mtimeMs, size }) => ({
          mode: mode & PERMISSIONS,
          modified: Math.floor(mtimeMs / 1000),
          size
        })
      )
    ),
    // The system changes permissions and times of a file that is open for reading, too.
    set: (attributes) =>
      isWritten
        ? done(room.explained(site)(setOpen(scene, place, handle, attributes)))
        : Effect.fail(readOnly(path)),
    sync: done(io(path, () => handle.sync())),
    close
  }
}

const entryOf = Effect.fnUntraced(function* (site: Site, path: string) {
  const place = yield* site.writable(path)
  return { place, ...(yield* needEntry(site, place)) }
})

const setEntry = Effect.fnUntraced(function* (scene: Scene, path: string, attributes: FileAttributes) {
  const { at, place, stats } = yield* entryOf(scene.site, path)
  if (stats.isDirectory()) {
    if (attributes.size !== undefined) return yield* conflict(place.path, "it is a folder, not a file")
    const handle = yield* open(place.path, within(at.folder, at.name), FOLDER)
    return yield* setOpen(scene, place, handle, attributes)
  }
  const flags = { read: false, write: true, create: false, exclusive: false, truncate: false }
  const handle = yield* openAt(scene, place, at, { flags, scope: yield* Effect.scope })
  yield* setOpen(scene, place, handle, attributes)
})

const makeFolder = Effect.fnUntraced(function* ({ room, site }: Scene, path: string, mode = 0o755) {
  const place = yield* site.writable(path)
  const { folder, name } = yield* site.parent(place)
  yield* room.take(site, place, 0, 1)
  yield* io(place.path, () => fs.mkdir(within(folder, name), 0o700))
  const made = yield* open(place.path, within(folder, name), FOLDER)
  yield* chownLike(place.path, made, yield* io(place.path, () => folder.stat()))
  yield* io(place.path, () => made.chmod(mode & NEW_PERMISSIONS))
})

/** Removes what writes of a killed daemon have left, which callers do not see, so that the folder counts as empty. */
const removeRemnants = Effect.fnUntraced(function* (path: string, { folder, name }: Located) {
  const handle = yield* open(path, within(folder, name), FOLDER)
  const names = yield* io(path, () => fs.readdir(`/proc/self/fd/${handle.fd}/.`))
  if (!names.every(isTemporary)) return
  for (const remnant of names) yield* Effect.ignore(io(path, () => fs.unlink(within(handle, remnant))))
}, Effect.scoped)

const removeEntry = Effect.fnUntraced(function* ({ site }: Scene, path: string, isFolder: boolean) {
  const { at, place, stats } = yield* entryOf(site, path)
  yield* refuseFixed(site, place.path)
  if (stats.isDirectory() !== isFolder)
    return yield* conflict(place.path, isFolder ? "it is not a folder" : "it is a folder, not a file")
  const name = within(at.folder, at.name)
  if (!isFolder) return yield* io(place.path, () => fs.unlink(name))
  yield* io(place.path, () => fs.rmdir(name)).pipe(
    Effect.catchIf(
      ({ code }) => code === "ENOTEMPTY" || code === "EEXIST",
      () =>
        Effect.andThen(
          removeRemnants(place.path, at),
          io(place.path, () => fs.rmdir(name))
        )
    )
  )
})

const statsAt = (site: Site, path: string) =>
  Effect.gen(function* () {
    const place = yield* site.place(path)
    const { folder, name } = yield* site.parent(place)
    return yield* lstatIn(path, folder, name)
  }).pipe(Effect.scoped)

const rename = Effect.fnUntraced(function* (
  scene: Scene,
  { from, path, replace }: Extract<EntryChange, { kind: "rename" }>
) {
  if (from === path) return
  if (replace) {
    const there = yield* statsAt(scene.site, path)
    const moved = yield* statsAt(scene.site, from)
    // As the system call: a folder replaces nothing.
    if (Option.isSome(there) && [there, moved].some(Option.exists((stats) => stats.isDirectory())))
      return yield* conflict(path, `it ${describe(there.value)}`)
  }
  yield* applyChange(scene, { kind: "move", from, path, overwrite: replace ? "replace" : "fail" })
})

const changeEntry = (scene: Scene, change: EntryChange) => {
  switch (change.kind) {
    case "set":
      return setEntry(scene, change.path, change.attributes)
    case "folder":
      return makeFolder(scene, change.path, change.mode)
    case "remove":
    case "remove-folder":
      return removeEntry(scene, change.path, change.kind === "remove-folder")
    case "rename":
      return rename(scene, change)
  }
}

/** Returns the limit of the server and what is left of it; without a limit, the figures of the disk. */
const spaceOf = Effect.fnUntraced(function* (files: InstanceFiles["Service"], { site }: Scene) {
  const { limit, measured } = yield* files.diskUse(site.folder, site.spec)
  const disk = yield* io(site.folder, () => fs.statfs(site.folder))
  const free = disk.bavail * disk.bsize
  if (limit === 0) {
    return {
      bytes: disk.blocks * disk.bsize,
      free_bytes: free,
      files: disk.files,
      free_files: disk.ffree
    } satisfies Space
  }
  const { bytes, entries } = yield* measured
  const most = fileLimit(limit)
  return {
    bytes: limit,
    free_bytes: Math.min(free, Math.max(0, limit - bytes)),
    files: most,
    free_files: Math.max(0, most - entries)
  } satisfies Space
})

/** Opens a session; its scope, or work on the files of the server, ends it and closes its files. */
export const openSession = Effect.fnUntraced(function* ({ files, instance, use, whyClosed }: SessionParts) {
  const ready = yield* Deferred.make<Scope.Scope>()
  const held = Effect.flatMap(Effect.scope, (scope) =>
    Effect.andThen(Deferred.succeed(ready, scope), Effect.never)
  )
  const running = yield* instance.accesses
    .run(whyClosed, held)
    .pipe(Effect.mapError(toFileError("/")), Effect.forkScoped({ startImmediately: true }))
  const scope = yield* Effect.raceFirst(Deferred.await(ready), Fiber.join(running))
  let opened = 0

  /** Takes one of the places of open files, until the scope ends. */
  const ownScope = Effect.gen(function* () {
    if (opened >= MOST_OPEN) return yield* tooManyOpen
    opened += 1
    const own = yield* Scope.fork(scope)
    yield* Scope.addFinalizer(
      own,
      Effect.sync(() => {
        opened -= 1
      })
    )
    return own
  })

  const openFile = (path: string, flags: OpenFlags, mode?: number) =>
    use(path, (scene) =>
      Effect.gen(function* () {
        const own = yield* ownScope
        const close = Scope.close(own, Exit.void)
        return yield* Effect.gen(function* () {
          const place = yield* flags.write ? scene.site.writable(path) : scene.site.place(path)
          const at = yield* scene.site.parent(place)
          const handle = yield* openAt(scene, place, at, {
            flags,
            scope: own,
            ...(mode === undefined ? {} : { mode })
          })
          return makeOpenFile(scene, place, { handle, close, isWritten: flags.write })
        }).pipe(Effect.onError(() => close))
      }).pipe(Effect.uninterruptible, scene.room.explained(scene.site))
    )

  const openFolder = (path: string) =>
    use(path, ({ site }) =>
      Effect.gen(function* () {
        const own = yield* ownScope
        const read = yield* openEntriesOf(site, path, own).pipe(
          Effect.onError(() => Scope.close(own, Exit.void))
        )
        return { read: Effect.mapError(read, toFileError(path)), close: Scope.close(own, Exit.void) }
      }).pipe(Effect.uninterruptible)
    )

  return {
    open: openFile,
    openFolder,
    change: (change) =>
      use(change.path, (scene) => scene.room.explained(scene.site)(changeEntry(scene, change))),
    space: use("/", (scene) => spaceOf(files, scene)),
    ended: Fiber.join(running)
  } satisfies FileSession
})
