/**
 * Where a node stores the objects of backups (spec 12.3). The key of an object is the id of its backup and a name:
 * `<id>/part-00001`, `<id>/index-00001`, `<id>/manifest.json`. A base has an id of its own. An object exists once it is complete.
 */
import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { basename, dirname } from "node:path"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { Effect, Fiber, Option, type Scope, Stream } from "effect"
import { megabytes } from "../../contract/domain/Limits.ts"
import { reserveSize } from "../../shared/work/diskSpace.ts"
import {
  FLUSH_INTERVAL,
  IoError,
  io,
  listFolder,
  lstat,
  makeClosedFolder,
  orMissing,
  toIoError
} from "../disk/fsio.ts"
import { enter, openFileIn, openRoot, type PathRefused, within, writeAll } from "../disk/safePath.ts"

/** An object that is being written. Without `end`, nothing stays once its scope closes. */
export interface ObjectWriter {
  readonly write: (bytes: Uint8Array) => Effect.Effect<void, IoError>
  /** @param sha256 the digest of all bytes in hex, which a target that needs it makes else */
  readonly end: (sha256?: string) => Effect.Effect<void, IoError>
}

export interface BackupTarget {
  /** Bytes of a part, except the last one. */
  readonly partBytes: number
  /** Makes what the first object needs. */
  readonly ready: Effect.Effect<void, IoError>
  readonly put: (key: string) => Effect.Effect<ObjectWriter, IoError, Scope.Scope>
  /** Reads an object from a byte on. @error IoError with the code ENOENT if there is no such object */
  readonly read: (key: string, start?: number) => Stream.Stream<Uint8Array, IoError>
  /** Returns the backups and bases with objects. */
  readonly list: Effect.Effect<ReadonlyArray<Listed>, IoError>
  readonly has: (key: string) => Effect.Effect<boolean, IoError>
  /** Removes the objects of a backup, the manifest first. @param only the names of the objects; default: all */
  readonly remove: (id: string, only?: ReadonlyArray<string>) => Effect.Effect<void, IoError>
}

/** A backup or a base in a target. */
export interface Listed {
  readonly id: string
  /** When its newest object was written, in ms since the epoch. */
  readonly at: number
  /** When each object was written, by its name; also those that are being written. */
  readonly objects: ReadonlyMap<string, number>
}

export const newestOf = (objects: Listed["objects"]) =>
  [...objects.values()].reduce((newest, at) => Math.max(newest, at), 0)

/** Returns the id under which the objects of a base are stored, beside those of backups (spec 12.12). */
export const baseId = (digest: string) => `base-${digest}`

/** Returns the digest of a base by its id; unset for a backup. */
export const idOfBase = (id: string): string | undefined => /^base-([0-9a-f]{64})$/.exec(id)?.[1]

export const MANIFEST = "manifest.json"
/** The object that tests a target. */
export const TEST = "test"
export const manifestKey = (id: string) => `${id}/${MANIFEST}`

const CHUNK = 256 * 1024
/** Bytes of a part of a backup on the node. An archive of one part is hashed once, and a range reads its parts whole. */
const PART_BYTES = 1024 * 1024 * 1024
/** Bytes between two checks of the disk. */
const CHECK_INTERVAL = 4 * 1024 * 1024
const OWN_FOLDER = 0o700
const OWN_FILE = 0o600
const WRITE = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_NOFOLLOW

const ids = /^(?:[a-z][a-z0-9]{11}|base-[0-9a-f]{64})$/
/** Names of objects, and of those that are being written. */
const objects = /^(?:(?:[a-z][a-z0-9]{11}-)?(?:part|index)-\d{5}|manifest\.json|test)(?:\.tmp)?$/

/** Errors of file systems that cannot flush a folder. */
const noFlush: ReadonlySet<string> = new Set(["EINVAL", "ENOSYS", "ENOTSUP", "EOPNOTSUPP"])

/** Returns the free bytes of the disk of a folder, and those that backups leave: twice the reserve, below which servers are stopped. */
export const roomIn = Effect.fnUntraced(function* (folder: string, reserve: number) {
  const { bavail, blocks, bsize } = yield* io("read the free space", () => fs.statfs(folder))
  const total = blocks * bsize
  return {
    free: bavail * bsize,
    kept: Math.max(reserveSize(total), Math.min(2 * reserve, Math.floor(total / 10)))
  }
})

/** Fails if the disk of a folder has no room for a backup. */
const checkRoom = Effect.fnUntraced(function* (folder: string, reserve: number) {
  const { free, kept } = yield* roomIn(folder, reserve)
  if (free >= kept) return
  return yield* new IoError({
    code: "ENOSPC",
    message: `the disk of the target has ${megabytes(free)} free, of which ${megabytes(kept)} are kept`
  })
})

/** Opens the folder of a target until the scope ends. @param make whether a missing one is made; else it may be none */
export type OpenFolder = (make: boolean) => Effect.Effect<Option.Option<fs.FileHandle>, IoError, Scope.Scope>

const refused = ({ path, reason }: PathRefused) =>
  new IoError({ code: "REFUSED", message: `open ${path}: ${reason}` })

/** Opens a folder in an open one, never through a link; a missing one is made for this process alone. */
export const enterOwn = Effect.fnUntraced(
  function* (path: string, folder: fs.FileHandle, name: string, make: boolean) {
    if (make)
      yield* io(`create folder ${path}`, () => fs.mkdir(within(folder, name), OWN_FOLDER)).pipe(
        Effect.catchIf(
          ({ code }) => code === "EEXIST",
          () => Effect.void
        )
      )
    return yield* enter(path, folder, name)
  },
  Effect.catchTag("PathRefused", (error) => refused(error))
)

/** Opens a folder of the node itself, which may be reached through links. */
export const ownFolder =
  (root: string): OpenFolder =>
  (make) =>
    Effect.andThen(
      make ? makeClosedFolder(root) : Effect.void,
      openRoot(root).pipe(
        Effect.map(Option.some),
        Effect.catchIf(
          ({ code }) => code === "ENOENT",
          () => Effect.succeedNone
        )
      )
    )

const syncOf = (path: string, folder: fs.FileHandle) =>
  io(`sync ${path}`, () => folder.sync()).pipe(
    Effect.catchIf(
      ({ code }) => noFlush.has(code),
      () => Effect.void
    )
  )

const missing = (key: string) =>
  new IoError({ code: "ENOENT", message: `read ${key}: no such file or folder` })

const unlink = (what: string, path: string) => io(what, () => fs.unlink(path)).pipe(orMissing(undefined))

/**
 * Returns the target that is a folder of the node. No link in it is followed, and other files in it are left alone.
 * @param reserve the bytes below which the node stops servers that fill the disk; twice as much stays free
 */
export const folderTarget = (open: OpenFolder, reserve: number): BackupTarget => {
  /** Opens the folder of a backup. */
  const opened = Effect.fnUntraced(function* (id: string, make: boolean) {
    const root = yield* open(make)
    return Option.isNone(root) ? Option.none<fs.FileHandle>() : yield* enterOwn(id, root.value, id, make)
  })
  const at = (folder: fs.FileHandle, name: string) => String(within(folder, name))
  const namesIn = (folder: fs.FileHandle) => listFolder(at(folder, "."))

  const put = Effect.fnUntraced(function* (key: string) {
    const folder = yield* opened(dirname(key), true)
    if (Option.isNone(folder)) return yield* missing(key)
    const path = at(folder.value, basename(key))
    const aside = `${path}.tmp`
    let isDone = false
    const handle = yield* Effect.acquireRelease(
      io(`write ${key}`, () => fs.open(aside, WRITE, OWN_FILE)),
      (opened) =>
        Effect.andThen(
          Effect.ignore(io(`close ${key}`, () => opened.close())),
          Effect.suspend(() =>
            isDone ? Effect.void : Effect.ignore(io(`remove ${key}`, () => fs.rm(aside, { force: true })))
          )
        )
    )
    const scope = yield* Effect.scope
    let unchecked = CHECK_INTERVAL
    let unflushed = 0
    let flushing: Fiber.Fiber<void, IoError> | undefined
    const flush = io(`write ${key}`, () => handle.datasync())
    return {
      write: Effect.fnUntraced(function* (bytes: Uint8Array) {
        unchecked += bytes.length
        unflushed += bytes.length
        if (unchecked >= CHECK_INTERVAL) {
          unchecked = 0
          yield* checkRoom(at(folder.value, "."), reserve)
        }
        yield* writeAll(`write ${key}`, handle, bytes, null)
        if (unflushed < FLUSH_INTERVAL) return
        unflushed = 0
        if (flushing !== undefined) yield* Fiber.join(flushing)
        flushing = yield* Effect.forkIn(flush, scope)
      }),
      end: Effect.fnUntraced(function* () {
        if (flushing !== undefined) yield* Fiber.join(flushing)
        yield* flush
        yield* io(`rename ${key}`, () => fs.rename(aside, path))
        isDone = true
        yield* syncOf(dirname(key), folder.value)
      })
    }
  })

  const read = Effect.fnUntraced(function* (key: string, start: number) {
    const folder = yield* opened(dirname(key), false)
    if (Option.isNone(folder)) return Stream.fail(missing(key))
    const file = yield* openFileIn(key, folder.value, basename(key)).pipe(
      Effect.catchTag("PathRefused", (error) => refused(error))
    )
    if (Option.isNone(file)) return Stream.fail(missing(key))
    const handle = file.value
    return NodeStream.fromReadable<Uint8Array, IoError>({
      evaluate: () => handle.createReadStream({ highWaterMark: CHUNK, autoClose: false, start }),
      onError: (cause) => toIoError(`read ${key}`, cause)
    })
  })

  /** Returns the times of a backup and its objects; nothing for a folder that is not of a backup. */
  const listed = Effect.fnUntraced(function* (id: string) {
    const folder = ids.test(id) ? yield* Effect.orElseSucceed(opened(id, false), Option.none) : Option.none()
    if (Option.isNone(folder)) return []
    const names = yield* namesIn(folder.value)
    if (!names.every((name) => objects.test(name))) return []
    const times = new Map<string, number>()
    for (const name of names) {
      const stats = yield* lstat(at(folder.value, name))
      if (stats !== undefined) times.set(name, stats.mtimeMs)
    }
    const own = yield* io(`look at ${id}`, () => folder.value.stat())
    return [{ id, at: Math.max(own.mtimeMs, newestOf(times)), objects: times }]
  }, Effect.scoped)

  return {
    partBytes: PART_BYTES,
    ready: Effect.scoped(Effect.asVoid(open(true))),
    put,
    read: (key, start = 0) => Stream.unwrap(read(key, start)),
    list: Effect.gen(function* () {
      const root = yield* open(false)
      if (Option.isNone(root)) return []
      return (yield* Effect.forEach(yield* namesIn(root.value), listed)).flat()
    }).pipe(Effect.scoped),
    has: Effect.fnUntraced(function* (key: string) {
      const folder = yield* opened(dirname(key), false)
      return Option.isSome(folder) && (yield* lstat(at(folder.value, basename(key)))) !== undefined
    }, Effect.scoped),
    remove: Effect.fnUntraced(function* (id: string, only?: ReadonlyArray<string>) {
      const folder = yield* opened(id, false)
      if (Option.isNone(folder)) return
      const names = only ?? [MANIFEST, ...(yield* namesIn(folder.value))]
      for (const name of names)
        if (objects.test(name)) yield* unlink(`remove ${id}/${name}`, at(folder.value, name))
      const root = yield* open(false)
      if (Option.isSome(root))
        yield* io(`remove ${id}`, () => fs.rmdir(at(root.value, id))).pipe(
          // Network storage may have put files of its own into it.
          Effect.catchIf(
            ({ code }) => code === "ENOENT" || code === "ENOTEMPTY",
            () => Effect.void
          )
        )
    }, Effect.scoped)
  }
}
