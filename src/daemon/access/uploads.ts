/** Resumable uploads (spec 10.8). The bytes of one are those of its temporary file. */
import { createHash } from "node:crypto"
import { type BigIntStats, constants } from "node:fs"
import { Array as Arr, Clock, Effect, Option, type Scope, Stream } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import { type FileError, FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import {
  type NodeUploads,
  refusalAsResult,
  type UploadError,
  type UploadOf,
  type UploadPart,
  UploadRefused,
  type UploadRequest,
  type UploadState
} from "../../contract/nodeApi/NodeUploadsApi.ts"
import { makeKeyedLock } from "../../shared/work/KeyedLock.ts"
import { enterAll, io, lstatIn, open, READ, temporaryName, within } from "../disk/safePath.ts"
import {
  forgetUpload,
  readUpload,
  removeMoved,
  removeTemporary,
  saveUpload,
  type UploadRecord,
  uploadIds
} from "../files/uploadFiles.ts"
import type { Scene } from "./changes.ts"
import {
  checkTarget,
  lstatBig,
  parentMade,
  putInPlace,
  syncFolder,
  temporaryIn,
  writeArriving
} from "./contents.ts"
import { etagOf } from "./entries.ts"
import { type AccessError, conflict, forbidden } from "./refused.ts"
import type { Site } from "./Site.ts"
import { renameAt } from "./trees.ts"
import { makeUploadWriters } from "./uploadWriters.ts"

/** Unfinished uploads of one server, and finished ones whose outcome is known. */
export const MOST_UPLOADS = 64
/** Unfinished uploads of one key on a server: a key does not keep the others from uploading. */
export const MOST_OF_KEY = 32
/** Time after the last byte in which an upload can continue, in ms. */
const LIFETIME = 24 * 3600 * 1000

/** Pieces that wait while others are written. They are written also if their request breaks off. */
const GATHERED_PIECES = 8

const WRITE =
  constants.O_RDWR | constants.O_APPEND | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY

type Failure = AccessError | UploadRefused

const gone = (id: string) =>
  new FileRefused({
    status: 404,
    detail: `no such upload: ${id}`,
    hint: "It has expired, was ended, or belongs to another key: begin it again."
  })

const tooLong = ({ path, size }: UploadRecord) =>
  new UploadRefused({
    status: 413,
    detail: `${path}: there are more bytes than the ${size} of Upload-Length`,
    hint: "Begin another upload with the right Upload-Length."
  })

const stateOf = (record: UploadRecord, offset: number, since: number): UploadState => ({
  path: record.path,
  size: record.size,
  offset,
  metadata: record.metadata,
  expires_at: new Date((record.done?.at ?? since) + LIFETIME).toISOString(),
  ...(record.done === undefined ? {} : { etag: record.done.etag })
})

const doneState = (record: UploadRecord) => stateOf(record, record.size, 0)

const recordOf = Effect.fnUntraced(function* ({ folder }: Site, { owner, upload_id }: UploadOf) {
  const record = yield* readUpload(folder, upload_id)
  return record?.owner === owner && record.lost === undefined ? record : yield* gone(upload_id)
})

/** Returns what no other file has: the number of an inode alone is used again. */
const identityOf = ({ birthtimeNs, ino }: BigIntStats) => `${ino}-${birthtimeNs}`

/** Opens the temporary file of an upload, unless it is gone or another file. */
const openTemporary = Effect.fnUntraced(function* (site: Site, record: UploadRecord, flags: number) {
  const place = yield* site.writable(record.path)
  const { path } = place
  const { handle: root } = yield* site.root(place)
  const folder = yield* enterAll(path, root, place.parts.slice(0, record.depth))
  if (Option.isNone(folder)) return undefined
  const at = { folder: folder.value, name: Buffer.from(record.file) }
  const found = yield* lstatIn(path, at.folder, at.name)
  if (Option.isNone(found) || !found.value.isFile()) return undefined
  const handle = yield* open(path, within(at.folder, at.name), flags).pipe(
    Effect.catchIf(
      ({ code }) => code === "ENOENT" || code === "ELOOP" || code === "ENXIO",
      () => Effect.succeed(undefined)
    )
  )
  if (handle === undefined) return undefined
  const stats = yield* io(path, () => handle.stat({ bigint: true }))
  // The server may have exchanged the file.
  if (!stats.isFile() || stats.nlink !== 1n || identityOf(stats) !== record.identity) return undefined
  return { place, at, handle, size: Number(stats.size), mtime: Number(stats.mtimeMs) }
})

/** Notes that an earlier daemon has put the file in place, and was killed. */
const putBefore = Effect.fnUntraced(function* (site: Site, record: UploadRecord) {
  const target = yield* Effect.option(Effect.flatMap(site.place(record.path), (place) => site.parent(place)))
  if (Option.isNone(target)) return undefined
  const stats = yield* lstatBig(record.path, target.value)
  if (stats === undefined || identityOf(stats) !== record.identity || Number(stats.size) !== record.size)
    return undefined
  const done: UploadRecord = {
    ...record,
    done: { etag: etagOf(stats), at: yield* Clock.currentTimeMillis }
  }
  yield* saveUpload(site.folder, done)
  return done
}, Effect.scoped)

/** Ends an upload. If the server has moved its temporary file, the record stays for {@link sweep}. */
const remove = Effect.fnUntraced(function* ({ room, site }: Scene, record: UploadRecord) {
  const isRemoved = yield* Effect.orElseSucceed(removeTemporary(site.layout, record), () => false)
  room.freed()
  if (isRemoved) yield* forgetUpload(site.folder, record.upload_id)
  else yield* saveUpload(site.folder, { ...record, lost: true })
})

/** Removes the temporary files that the server has moved, if there are as many. */
const sweep = Effect.fnUntraced(function* ({ room, site }: Scene, fewest: number) {
  const lost: Array<UploadRecord> = []
  for (const id of yield* uploadIds(site.folder)) {
    const record = yield* readUpload(site.folder, id)
    if (record?.lost === true) lost.push(record)
  }
  if (lost.length < fewest) return
  yield* removeMoved(site.layout, lost)
  room.freed()
  for (const { upload_id } of lost) yield* forgetUpload(site.folder, upload_id)
})

type TemporaryFile = NonNullable<Effect.Success<ReturnType<typeof openTemporary>>>

type Found = { readonly done: UploadRecord } | { readonly done?: never; readonly file: TemporaryFile }

/** Returns the bytes that a temporary file has, without those whose checksum is unknown. */
const offsetOf = ({ unverified }: UploadRecord, { size }: TemporaryFile) => Math.min(size, unverified ?? size)

/** Opens an upload; one that has expired, or has lost its temporary file, is removed. */
const opened = Effect.fnUntraced(function* (
  scene: Scene,
  record: UploadRecord,
  flags: number
): Effect.fn.Return<Found | undefined, AccessError, Scope.Scope> {
  const now = yield* Clock.currentTimeMillis
  const isOver = (since: number) => now - since > LIFETIME
  const file = record.done === undefined ? yield* openTemporary(scene.site, record, flags) : undefined
  if (file !== undefined && !isOver(file.mtime)) return { file }
  const done = record.done === undefined ? yield* putBefore(scene.site, record) : record
  if (done?.done !== undefined && !isOver(done.done.at)) return { done }
  yield* remove(scene, record)
  return undefined
})

/** Removes expired uploads. Returns the keys of the unfinished ones, once for each upload. @param fewest see {@link sweep} */
const prune = Effect.fnUntraced(function* (scene: Scene, fewest: number) {
  const { folder } = scene.site
  const done: Array<{ readonly id: string; readonly at: number }> = []
  const unfinished: Array<string> = []
  for (const id of yield* uploadIds(folder)) {
    const record = yield* readUpload(folder, id)
    if (record === undefined) {
      yield* forgetUpload(folder, id)
      continue
    }
    if (record.lost === true) continue
    // An upload whose path cannot be walked now stays.
    const found = yield* opened(scene, record, READ).pipe(Effect.option, Effect.scoped)
    if (Option.isNone(found)) unfinished.push(record.owner)
    else if (found.value?.done?.done !== undefined) done.push({ id, at: found.value.done.done.at })
    else if (found.value !== undefined) unfinished.push(record.owner)
  }
  for (const { id } of done.toSorted((one, other) => other.at - one.at).slice(MOST_UPLOADS))
    yield* forgetUpload(folder, id)
  yield* sweep(scene, fewest)
  return unfinished
})

const makeTemporary = Effect.fnUntraced(function* ({ room, site }: Scene, request: UploadRequest) {
  const place = yield* site.writable(request.path)
  const { path } = place
  const name = place.parts.at(-1)
  if (name === undefined) return yield* forbidden(path, "a shared file cannot be replaced")
  const folders = yield* site.foldersTo({ ...place, parts: place.parts.slice(0, -1) })
  const folder = Arr.lastNonEmpty(folders)
  const depth = folders.length - 1
  const isMissing = depth < place.parts.length - 1
  yield* checkTarget(path, request, isMissing ? undefined : yield* lstatBig(path, { folder, name }))
  yield* room.fits(site, place, request.size, 1)
  yield* room.take(site, place, 0, 1)
  const file = temporaryName()
  const { handle, keep } = yield* temporaryIn(path, folder, file)
  const stats = yield* io(path, () => handle.stat({ bigint: true }))
  const record: UploadRecord = { ...request, path, file, identity: identityOf(stats), depth }
  yield* Effect.uninterruptible(Effect.tap(saveUpload(site.folder, record), () => Effect.sync(() => keep())))
  return record
}, Effect.scoped)

/** Puts the file of a whole upload in place. A condition that no longer holds ends the upload. */
const finish = Effect.fnUntraced(function* (
  scene: Scene,
  record: UploadRecord,
  { at, handle, place }: TemporaryFile
) {
  const { room, site } = scene
  const { path } = place
  const target = yield* parentMade(site, room, place)
  const renameTo = (to: typeof target) => renameAt(path, at, to)
  const { etag } = yield* putInPlace(room, record, target, { handle, renameTo }).pipe(
    Effect.tapError((error) =>
      error._tag === "FileRefused" && error.status === 412 ? remove(scene, record) : Effect.void
    )
  )
  yield* syncFolder(path, at.folder)
  const done: UploadRecord = { ...record, done: { etag, at: yield* Clock.currentTimeMillis } }
  yield* saveUpload(site.folder, done)
  return doneState(done)
})

/** Discards bytes from `offset` whose checksum is unknown, and notes whether those that follow have one. */
const discardUnverified = Effect.fnUntraced(function* (
  { room, site }: Scene,
  { unverified, ...record }: UploadRecord,
  { handle, place: { path }, size }: TemporaryFile,
  { isChecked, offset }: { readonly offset: number; readonly isChecked: boolean }
) {
  if (offset < size) {
    yield* io(path, () => handle.truncate(offset))
    room.freed()
  }
  if (isChecked) yield* saveUpload(site.folder, { ...record, unverified: offset })
  else if (unverified !== undefined) yield* saveUpload(site.folder, record)
  return record
})

const append = Effect.fnUntraced(function* (
  scene: Scene,
  { algorithm, checksum, length = 0, offset, ...of }: UploadPart,
  bytes: Stream.Stream<Uint8Array, AccessError>
): Effect.fn.Return<UploadState, Failure, Scope.Scope> {
  const { room, site } = scene
  const before = yield* recordOf(site, of)
  const found = yield* opened(scene, before, WRITE)
  if (found === undefined) return yield* gone(of.upload_id)
  const start = found.done === undefined ? offsetOf(before, found.file) : before.size
  if (offset !== start) {
    return yield* conflict(
      before.path,
      `the upload is at byte ${start}, not ${offset}`,
      "Ask for the offset with HEAD, and continue there."
    )
  }
  if (offset + length > before.size) return yield* tooLong(before)
  if (found.done !== undefined) return doneState(found.done)
  const { file } = found
  const { handle, place } = file
  const hash = algorithm === undefined ? undefined : createHash(algorithm)
  const record = yield* discardUnverified(scene, before, file, { offset, isChecked: hash !== undefined })
  let end = offset
  yield* writeArriving(
    place.path,
    handle,
    { bytes: Stream.buffer(bytes, { capacity: GATHERED_PIECES }), gathers: 0, isOwned: true },
    (chunks, count): Effect.Effect<void, Failure> => {
      if (end + count > record.size) return Effect.fail(tooLong(record))
      end += count
      for (const chunk of chunks) hash?.update(chunk)
      return room.take(site, place, count)
    }
  )
  if (hash !== undefined && hash.digest("base64") !== checksum) {
    yield* io(place.path, () => handle.truncate(offset))
    room.freed()
    return yield* new UploadRefused({
      status: 460,
      detail: `${place.path}: the bytes from ${offset} do not have the announced checksum`,
      hint: "Send them again from the same offset; they were changed on their way."
    })
  }
  yield* io(place.path, () => handle.datasync())
  if (hash !== undefined) yield* saveUpload(site.folder, record)
  if (end === record.size) return yield* finish(scene, record, file)
  return stateOf(record, end, yield* Clock.currentTimeMillis)
})

/** Runs an access to the files of a server. */
type Use = <A>(
  id: ServerId,
  path: string,
  access: (scene: Scene) => Effect.Effect<A, AccessError, Scope.Scope>
) => Effect.Effect<A, FileError>

/** Gives bytes that arrive to an access; see `makeAccess.ts`. */
type Taking = <A, E, E2>(
  bytes: Stream.Stream<Uint8Array, E>,
  access: (given: Stream.Stream<Uint8Array, AccessError>) => Effect.Effect<A, E2>
) => Effect.Effect<A, E | E2>

/** Makes the uploads of a daemon. @param servers those that have uploads now */
export const makeUploads = (use: Use, taking: Taking, servers: Effect.Effect<ReadonlyArray<ServerId>>) => {
  const writers = makeUploadWriters()
  /** Serialises the beginnings on a server, whose uploads are counted. */
  const beginning = makeKeyedLock()
  const keyOf = ({ folder }: Site, { upload_id }: Pick<UploadOf, "upload_id">) => `${folder}/${upload_id}`

  const run = <A>(
    id: ServerId,
    path: string,
    access: (scene: Scene) => Effect.Effect<A, Failure, Scope.Scope>
  ): Effect.Effect<A, UploadError> =>
    Effect.flatMap(
      use(id, path, (scene) => refusalAsResult(access(scene))),
      Effect.fromResult
    )

  /** Runs an access to each server that has uploads. A server that is removed, or whose files are worked on, is left out. */
  const onEach = <A>(access: (scene: Scene) => Effect.Effect<A, Failure, Scope.Scope>) =>
    Effect.flatMap(servers, (ids) =>
      Effect.forEach(ids, (id) => Effect.ignore(run(id, "/", access)), { discard: true })
    )

  const sent = (scene: Scene, part: UploadPart, bytes: Stream.Stream<Uint8Array, AccessError>) =>
    writers
      .alone(keyOf(scene.site, part), bytes, (watched) => append(scene, part, watched))
      .pipe(refusalAsResult, scene.room.explained(scene.site), Effect.flatMap(Effect.fromResult))

  const begin = Effect.fnUntraced(function* (scene: Scene, request: UploadRequest) {
    const { site } = scene
    const known = yield* readUpload(site.folder, request.upload_id)
    if (known === undefined) {
      const unfinished = yield* prune(scene, MOST_UPLOADS)
      const own = unfinished.filter((owner) => owner === request.owner).length
      if (own >= MOST_OF_KEY || unfinished.length >= MOST_UPLOADS)
        return yield* conflict(
          request.path,
          own >= MOST_OF_KEY
            ? `the key has ${own} unfinished uploads on the server`
            : `the server has ${unfinished.length} unfinished uploads`,
          "Finish some, or end them with DELETE."
        )
      yield* scene.room.explained(site)(makeTemporary(scene, request))
    }
    if (request.size === 0) return yield* sent(scene, { ...request, offset: 0 }, Stream.empty)
    return yield* find(scene, request)
  })

  const find = Effect.fnUntraced(function* (
    scene: Scene,
    of: UploadOf
  ): Effect.fn.Return<UploadState, Failure, Scope.Scope> {
    const record = yield* recordOf(scene.site, of)
    const found = yield* opened(scene, record, READ)
    if (found === undefined) return yield* gone(of.upload_id)
    if (found.done !== undefined) return doneState(found.done)
    const { handle, mtime, place } = found.file
    const offset = offsetOf(record, found.file)
    // The daemon was killed between the last byte and the new name.
    if (offset === record.size) return yield* sent(scene, { ...of, offset }, Stream.empty)
    yield* io(place.path, () => handle.datasync())
    return stateOf(record, offset, mtime)
  })

  const uploads: NodeUploads = {
    begin: Effect.fn("NodeUploads.begin")((id, request) =>
      run(id, request.path, (scene) => beginning.withLock(scene.site.folder)(begin(scene, request)))
    ),
    find: Effect.fn("NodeUploads.find")((id, of) => run(id, "/", (scene) => find(scene, of))),
    append: (id, part, bytes) =>
      taking(bytes, (given) => run(id, "/", (scene) => sent(scene, part, given))).pipe(
        Effect.withSpan("NodeUploads.append")
      ),
    end: Effect.fn("NodeUploads.end")((id, of) =>
      run(
        id,
        "/",
        Effect.fnUntraced(function* (scene) {
          const record = yield* recordOf(scene.site, of)
          yield* writers.end(keyOf(scene.site, of))
          yield* record.done === undefined
            ? remove(scene, record)
            : forgetUpload(scene.site.folder, of.upload_id)
        })
      )
    ),
    endOf: Effect.fn("NodeUploads.endOf")((owners) =>
      onEach(
        Effect.fnUntraced(function* (scene) {
          for (const upload_id of yield* uploadIds(scene.site.folder)) {
            const record = yield* readUpload(scene.site.folder, upload_id)
            if (
              record === undefined ||
              record.done !== undefined ||
              record.lost === true ||
              !owners.includes(record.owner)
            )
              continue
            yield* writers.end(keyOf(scene.site, record))
            yield* remove(scene, record)
          }
        })
      )
    )
  }
  return {
    ...uploads,
    /** Removes what has expired. */
    expire: onEach((scene) => prune(scene, 1))
  }
}
