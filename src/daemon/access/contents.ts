/** Reading and replacing the contents of files (spec 10.3). */
import { createHash } from "node:crypto"
import type { BigIntStats } from "node:fs"
import * as fs from "node:fs/promises"
import { Effect, Exit, Option, Stream } from "effect"
import { FileRefused, type ReadFile, type WriteFile } from "../../contract/nodeApi/NodeFiles.ts"
import { freeMemory } from "../../shared/work/freeMemory.ts"
import { atScopeEnd } from "../../shared/work/inScope.ts"
import { makeKeyedLock } from "../../shared/work/KeyedLock.ts"
import { bytesBetween } from "../archives/member.ts"
import { FLUSH_INTERVAL, type IoError, orMissing } from "../disk/fsio.ts"
import {
  CREATE,
  chownLike,
  describe,
  enterAll,
  io,
  type Name,
  open,
  openFileIn,
  PERMISSIONS,
  temporaryName,
  within,
  writeAllOf
} from "../disk/safePath.ts"
import { etagOf } from "./entries.ts"
import { type AccessError, conflict, forbidden, noSuchPath, unprocessable } from "./refused.ts"
import type { Room } from "./room.ts"
import type { Located, Place, Site } from "./Site.ts"
import type { Unfinished } from "./Unfinished.ts"

/** Bytes that are read at a time. */
const CHUNK = 256 * 1024
/** Bytes that are written at a time: a call takes as long as the copy of many bytes. */
const GATHERED = 512 * 1024

/** Serialises the replacements of a file. */
const replacing = makeKeyedLock()

const conditionFailed = (path: string, detail: string) =>
  new FileRefused({
    status: 412,
    detail: `${path}: ${detail}`,
    hint: "Read the file again, then repeat the write."
  })

/** Opens a file of the server until the scope ends. */
export const openFile = Effect.fnUntraced(function* (site: Site, place: Place) {
  if (place.parts.length === 0) {
    const { handle, isFolder } = yield* site.root(place)
    return isFolder ? yield* conflict(place.path, "it is a folder, not a file") : handle
  }
  const { folder, name } = yield* site.parent(place)
  const file = yield* openFileIn(place.path, folder, name)
  return Option.isNone(file) ? yield* noSuchPath(place.path) : file.value
})

/** Opens a file and returns its bytes from `start` to `end`, both included. */
export const readContents = Effect.fnUntraced(function* (site: Site, request: ReadFile) {
  const place = yield* site.place(request.path)
  const { path } = place
  // The folders on the way are closed again; the file stays open.
  const handle = yield* openFile(site, place)
  const stats = yield* io(path, () => handle.stat({ bigint: true }))
  if (request.etag !== undefined && request.etag !== etagOf(stats))
    return yield* conditionFailed(path, "it has been changed")
  const size = Number(stats.size)
  const start = request.start ?? 0
  if (start > 0 && start >= size) {
    return yield* new FileRefused({
      status: 416,
      detail: `${path}: it has ${size} bytes`,
      hint: "Ask for bytes below the size of the file."
    })
  }
  const end = Math.min(size, (request.end ?? Number.POSITIVE_INFINITY) + 1)
  const length = Math.min(CHUNK, Math.max(0, end - start))
  // Without new memory for each piece, large files do not make the garbage collector run.
  const kept = request.isTransient === true ? Buffer.allocUnsafe(length) : undefined
  const read = (at: number, most: number) =>
    Effect.suspend(() => {
      const chunk = (kept ?? Buffer.allocUnsafe(length)).subarray(0, most)
      return Effect.map(
        io(path, () => handle.read(chunk, 0, chunk.length, at)),
        ({ bytesRead }) => chunk.subarray(0, bytesRead)
      )
    })
  const bytes = bytesBetween(start, end, read, () => conflict(path, "it became shorter while it was read"))
  return { bytes, path }
})

/** The conditions of a write, and the permissions of its file. */
type Replacing = Pick<WriteFile, "if_match" | "if_none_match" | "mode">

export const lstatBig = (path: string, { folder, name }: Located) =>
  io(path, () => fs.lstat(within(folder, name), { bigint: true })).pipe(orMissing(undefined))

/** Checks that a path can be replaced by a file, and the conditions of the write. */
export const checkTarget = (path: string, request: Replacing, there: BigIntStats | undefined) => {
  if (there !== undefined && !there.isFile()) return conflict(path, `it ${describe(there)}, not a file`)
  if (request.if_none_match === "*" && there !== undefined) return conditionFailed(path, "it exists")
  if (request.if_match === undefined) return Effect.void
  if (there === undefined) return conditionFailed(path, "it does not exist")
  return request.if_match === "*" || request.if_match === etagOf(there)
    ? Effect.void
    : conditionFailed(path, "it has been changed")
}

/** Makes a temporary file in a folder, which is removed at the end of the scope unless it is renamed. */
export const temporaryIn = Effect.fnUntraced(function* (path: string, folder: fs.FileHandle, name: Name) {
  let isKept = false
  const handle = yield* open(path, within(folder, name), CREATE, 0o600)
  yield* atScopeEnd(() =>
    isKept
      ? Effect.void
      : io(path, () => fs.unlink(within(folder, name))).pipe(
          orMissing(undefined),
          Effect.catch(({ code }) =>
            Effect.logWarning(`cannot remove the temporary file of ${path}: ${code}`)
          )
        )
  )
  return {
    handle,
    /** Lets the file stay as it is. */
    keep: () => {
      isKept = true
    },
    /** Gives the file its name. Once that has begun, it is completed. */
    renameTo: (to: Located) =>
      Effect.map(
        io(path, () => fs.rename(within(folder, name), within(to.folder, to.name))),
        () => {
          isKept = true
        }
      )
  }
})

export const syncFolder = (path: string, folder: fs.FileHandle) => io(path, () => folder.sync())

/** Folders that a write has made, one in the other, and the open folder of the first one. */
interface Made {
  folder?: fs.FileHandle
  readonly names: Array<Name>
}

/** Removes the folders that a failed write has made, unless something else is in them by now. */
const removeMade = (path: string, { folder, names }: Made) => {
  if (folder === undefined) return Effect.void
  const remove = (name: Name, outer: ReadonlyArray<Name>) =>
    Effect.gen(function* () {
      const inside = yield* enterAll(path, folder, outer)
      if (Option.isSome(inside)) yield* io(path, () => fs.rmdir(within(inside.value, name)))
    }).pipe(Effect.scoped, Effect.ignore)
  return Effect.forEach(
    names.toReversed(),
    (name, index) => remove(name, names.slice(0, names.length - 1 - index)),
    { discard: true }
  )
}

/** Opens the folder of a place and makes missing ones, which a failure removes again. */
export const parentMade = Effect.fnUntraced(function* (site: Site, room: Room, place: Place) {
  const made: Made = { names: [] }
  const located = yield* Effect.onError(
    site.parent(place, (folder, name) => {
      made.folder ??= folder
      made.names.push(name)
    }),
    () => removeMade(place.path, made)
  )
  // Added after the first folder was opened, so it runs while that is open.
  yield* atScopeEnd((exit) => (Exit.isFailure(exit) ? removeMade(place.path, made) : Effect.void))
  if (made.names.length > 0) yield* room.take(site, place, 0, made.names.length)
  return located
})

interface Arriving<E> {
  readonly bytes: Stream.Stream<Uint8Array, E>
  /** As of {@link WriteFile}. */
  readonly isOwned?: boolean
  /** Bytes that are written at a time, except for those that arrive at once; default: {@link GATHERED}. */
  readonly gathers?: number
}

/** Passes on chunks of a stream, as many at a time as have some bytes. */
const gathered = Effect.fnUntraced(function* <E, E2>(
  { bytes, gathers = GATHERED }: Arriving<E>,
  use: (chunks: ReadonlyArray<Uint8Array>, length: number) => Effect.Effect<void, E2>
) {
  let chunks: Array<Uint8Array> = []
  let length = 0
  const pass = Effect.suspend(() => {
    const [some, all] = [chunks, length]
    chunks = []
    length = 0
    return use(some, all)
  })
  yield* Stream.runForEachArray(bytes, (arrived) => {
    for (const chunk of arrived) {
      chunks.push(chunk)
      length += chunk.length
    }
    return length < gathers ? Effect.void : pass
  })
  if (length > 0) yield* pass
})

/** Writes bytes after the end of a file as they arrive. `check` runs before each write. */
export const writeArriving = <E>(
  path: string,
  handle: fs.FileHandle,
  arriving: Arriving<AccessError>,
  check: (chunks: ReadonlyArray<Uint8Array>, length: number) => Effect.Effect<void, E>
) => {
  let unflushed = 0
  return gathered(
    arriving,
    Effect.fnUntraced(function* (chunks, length) {
      yield* check(chunks, length)
      yield* writeAllOf(path, handle, chunks)
      if (arriving.isOwned === true) chunks.forEach(freeMemory)
      unflushed += length
      if (unflushed < FLUSH_INTERVAL) return
      unflushed = 0
      yield* io(path, () => handle.datasync())
    })
  )
}

/** Gives a whole file owner, permissions and the name of its target, once its conditions hold and it is on disk. */
export const putInPlace = Effect.fnUntraced(function* (
  room: Room,
  request: Replacing & { readonly path: string },
  target: Located,
  file: {
    readonly handle: fs.FileHandle
    readonly renameTo: (to: Located) => Effect.Effect<void, IoError>
  }
) {
  const { path } = request
  const { handle, renameTo } = file
  const before = yield* lstatBig(path, target)
  const owner = before ?? (yield* io(path, () => target.folder.stat({ bigint: true })))
  yield* chownLike(path, handle, { uid: Number(owner.uid), gid: Number(owner.gid) })
  const kept = before === undefined ? 0o644 : Number(before.mode) & PERMISSIONS
  yield* io(path, () => handle.chmod(request.mode === undefined ? kept : Number.parseInt(request.mode, 8)))
  yield* io(path, () => handle.sync())
  const { dev, ino } = yield* io(path, () => target.folder.stat())
  const replaced = Effect.gen(function* () {
    const now = yield* lstatBig(path, target)
    yield* checkTarget(path, request, now)
    yield* renameTo(target)
    if (now !== undefined) room.freed()
    yield* syncFolder(path, target.folder)
    const written = yield* io(path, () => handle.stat({ bigint: true }))
    return { created: now === undefined, etag: etagOf(written) }
  })
  // Of two writes with the same condition, one is refused.
  return yield* replacing.withLock(`${dev}:${ino}:${target.name.toString("latin1")}`)(
    Effect.uninterruptible(replaced)
  )
})

/** Writes a file beside its target, and replaces the target once the last byte is on disk. `aside`: its name until then. */
export const writeContents = (
  {
    aside: staged,
    room,
    site,
    unfinished
  }: {
    readonly site: Site
    readonly room: Room
    readonly unfinished: Unfinished
    readonly aside?: Buffer
  },
  request: WriteFile,
  bytes: Stream.Stream<Uint8Array, AccessError>
) =>
  Effect.gen(function* () {
    const place = yield* site.writable(request.path)
    const { path } = place
    if (place.parts.length === 0) return yield* forbidden(path, "a shared file cannot be replaced")
    const take = yield* room.taking(site, place)
    const target = yield* parentMade(site, room, place)
    yield* checkTarget(path, request, yield* lstatBig(path, target))
    yield* room.fits(site, place, request.size ?? 0)
    yield* take(0, 1)
    const aside = staged ?? Buffer.from(temporaryName())
    // A staged name is in the record of a task.
    if (staged === undefined) yield* unfinished.record(path, { aside, old: Buffer.from(temporaryName()) })
    const file = yield* temporaryIn(path, target.folder, aside)
    const hash = createHash("sha256")
    const isOwned = request.isOwned === true
    yield* writeArriving(path, file.handle, { bytes, isOwned }, (chunks, length) => {
      if (request.sha256 !== undefined) for (const chunk of chunks) hash.update(chunk)
      return take(length)
    })
    if (request.sha256 !== undefined && hash.digest("base64") !== request.sha256) {
      return yield* unprocessable(
        `${path}: the contents do not have the announced digest`,
        "Send the file again; it was changed on its way."
      )
    }
    return yield* putInPlace(room, { ...request, path }, target, file)
  }).pipe(Effect.scoped, room.explained(site))
