/**
 * Where a node stores the objects of backups (spec 12.3). The key of an object is the id of its backup and a name:
 * `<id>/part-00001`, `<id>/index-00001`, `<id>/manifest.json`. An object exists once it is complete.
 */
import { createReadStream } from "node:fs"
import * as fs from "node:fs/promises"
import { dirname, join } from "node:path"
import * as NodeStream from "@effect/platform-node/NodeStream"
import { Effect, type Scope, type Stream } from "effect"
import { megabytes } from "../../contract/domain/Limits.ts"
import { reserveSize } from "../../shared/work/diskSpace.ts"
import { IoError, io, listFolder, makeClosedFolder, orMissing, syncFolder, toIoError } from "../disk/fsio.ts"
import { writeAll } from "../disk/safePath.ts"

/** An object that is being written. Without `end`, nothing stays once its scope closes. */
export interface ObjectWriter {
  readonly write: (bytes: Uint8Array) => Effect.Effect<void, IoError>
  readonly end: Effect.Effect<void, IoError>
}

export interface BackupTarget {
  /** Bytes of a part, except the last one. */
  readonly partBytes: number
  readonly put: (key: string) => Effect.Effect<ObjectWriter, IoError, Scope.Scope>
  /** @error IoError with the code ENOENT if there is no such object */
  readonly read: (key: string) => Stream.Stream<Uint8Array, IoError>
  /** Returns the ids of backups with objects, and when the newest object of each was written, in ms since the epoch. */
  readonly list: Effect.Effect<ReadonlyArray<{ readonly id: string; readonly at: number }>, IoError>
  readonly has: (key: string) => Effect.Effect<boolean, IoError>
  /** Removes the objects of a backup, the manifest first. */
  readonly remove: (id: string) => Effect.Effect<void, IoError>
}

export const manifestKey = (id: string) => `${id}/manifest.json`

const CHUNK = 256 * 1024
/** Bytes of a part of a backup on the node. */
const PART_BYTES = 64 * 1024 * 1024
/** Bytes between two checks of the disk. */
const CHECK_INTERVAL = 4 * 1024 * 1024

/** Fails if the disk of a folder has little more room than the reserve of its node, below which servers are stopped. */
const checkRoom = Effect.fnUntraced(function* (folder: string, reserve: number) {
  const { bavail, blocks, bsize } = yield* io("read the free space", () => fs.statfs(folder))
  const [total, free] = [blocks * bsize, bavail * bsize]
  const kept = Math.max(reserveSize(total), Math.min(2 * reserve, Math.floor(total / 10)))
  if (free >= kept) return
  return yield* new IoError({
    code: "ENOSPC",
    message: `the disk of the target has ${megabytes(free)} free, of which ${megabytes(kept)} are kept`
  })
})

/**
 * Returns the target that is a folder of the node.
 * @param reserve the bytes below which the node stops servers that fill the disk; twice as much stays free
 */
export const folderTarget = (root: string, reserve: number): BackupTarget => {
  const pathOf = (key: string) => join(root, key)

  const put = Effect.fnUntraced(function* (key: string) {
    const path = pathOf(key)
    const aside = `${path}.tmp`
    yield* makeClosedFolder(root)
    yield* makeClosedFolder(dirname(path))
    let isDone = false
    const handle = yield* Effect.acquireRelease(
      io(`write ${key}`, () => fs.open(aside, "w", 0o600)),
      (opened) =>
        Effect.andThen(
          Effect.ignore(io(`close ${key}`, () => opened.close())),
          Effect.suspend(() =>
            isDone ? Effect.void : Effect.ignore(io(`remove ${key}`, () => fs.rm(aside, { force: true })))
          )
        )
    )
    let unchecked = CHECK_INTERVAL
    return {
      write: Effect.fnUntraced(function* (bytes: Uint8Array) {
        unchecked += bytes.length
        if (unchecked >= CHECK_INTERVAL) {
          unchecked = 0
          yield* checkRoom(root, reserve)
        }
        yield* writeAll(`write ${key}`, handle, bytes, null)
      }),
      end: Effect.gen(function* () {
        yield* io(`write ${key}`, () => handle.datasync())
        yield* io(`rename ${key}`, () => fs.rename(aside, path))
        isDone = true
        yield* syncFolder(dirname(path))
      })
    }
  })

  const newest = Effect.fnUntraced(function* (id: string) {
    const names = yield* listFolder(pathOf(id))
    const times = yield* Effect.forEach(names, (name) =>
      io(`look at ${name}`, () => fs.stat(join(pathOf(id), name))).pipe(
        Effect.map(({ mtimeMs }) => mtimeMs),
        orMissing(0)
      )
    )
    const folder = yield* io(`look at ${id}`, () => fs.stat(pathOf(id)))
    return { id, at: Math.max(folder.mtimeMs, ...times) }
  })

  return {
    partBytes: PART_BYTES,
    put,
    read: (key) =>
      NodeStream.fromReadable<Uint8Array, IoError>({
        evaluate: () => createReadStream(pathOf(key), { highWaterMark: CHUNK }),
        onError: (cause) => toIoError(`read ${key}`, cause)
      }),
    list: Effect.gen(function* () {
      const ids = yield* listFolder(root)
      return yield* Effect.forEach(ids, newest)
    }),
    has: (key) => io(`look at ${key}`, () => fs.stat(pathOf(key))).pipe(Effect.as(true), orMissing(false)),
    remove: (id) =>
      Effect.andThen(
        io(`remove ${manifestKey(id)}`, () => fs.rm(pathOf(manifestKey(id)), { force: true })),
        io(`remove ${id}`, () => fs.rm(pathOf(id), { recursive: true, force: true }))
      )
  }
}
