import { randomBytes } from "node:crypto"
import { open, stat, statfs, truncate, unlink } from "node:fs/promises"
import { dirname } from "node:path"
import { Context, Data, Effect, Layer, Schedule, Semaphore } from "effect"
import { DatabaseFull } from "../../../contract/domain/errors.ts"
import { FULL_BELOW, reserveSize, roomForReserve } from "../../../shared/work/diskSpace.ts"
import { elapsedMillis } from "../../../shared/work/elapsed.ts"

const LOG_EVERY_MILLIS = 1_000

const LOOK_EVERY = "1 second"

/** Lets a write use the reserve of a full disk: deletions, revocations and registrations of nodes. */
export const MayUseReserve = Context.Reference<boolean>("muster/store/MayUseReserve", {
  defaultValue: () => false
})

export const mayUseReserve = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.provideService(self, MayUseReserve, true)

/** Whether the disk of the database is full, and the consequences. */
export class DatabaseDisk extends Context.Service<
  DatabaseDisk,
  {
    /** Whether the disk is full, as far as known; for readiness. */
    readonly isFull: () => boolean
    /** Whether writes are refused without a try, except those that may use the reserve. */
    readonly refuses: () => boolean
    /** Returns the error of refused writes. Logs at most one line per second. */
    refuse(writes: number): Effect.Effect<DatabaseFull>
    /** Records that writes failed because the disk is full; returns their error. */
    failed(writes: number): Effect.Effect<DatabaseFull>
    readonly committed: Effect.Effect<void>
  }
>()("muster/store/DatabaseDisk") {
  /** A remote disk, such as that of a PostgreSQL server: each write is tried. */
  static readonly layerRemote = Layer.sync(DatabaseDisk, () => {
    let full = false
    const { flush, refuse } = refusals()
    return DatabaseDisk.of({
      isFull: () => full,
      refuses: () => false,
      refuse,
      failed: (writes) =>
        Effect.suspend(() => {
          full = true
          return refuse(writes)
        }),
      committed: Effect.suspend(() => {
        if (!full) return Effect.void
        full = false
        return flush
      })
    })
  })

  /** Checks each second; releases the reserve on a full disk, and makes it again once there is room. */
  static readonly layerWatched = (database: string) =>
    Layer.effect(DatabaseDisk, Effect.annotateLogs(watched(database), { folder: dirname(database) }))
}

/** Counts refused writes, and logs them at most once per second. */
const refusals = () => {
  let refused = 0
  let loggedAt = Number.NEGATIVE_INFINITY
  const refuse = Effect.fnUntraced(function* (writes: number) {
    refused += writes
    const now = yield* elapsedMillis
    if (now - loggedAt >= LOG_EVERY_MILLIS) {
      loggedAt = now
      yield* Effect.logError("writes are refused: the disk of the database is full").pipe(
        Effect.annotateLogs({ refused })
      )
      refused = 0
    }
    return DatabaseFull.of()
  })
  const flush = Effect.suspend(() => {
    const last = refused
    refused = 0
    loggedAt = Number.NEGATIVE_INFINITY
    return Effect.logInfo("the disk of the database has room again: writes are accepted").pipe(
      Effect.annotateLogs({ refused: last })
    )
  })
  return { flush, refuse }
}

const watched = Effect.fnUntraced(function* (database: string) {
  const file = reserveFileOf(database)
  const folder = dirname(database)
  const oneAtATime = yield* Semaphore.make(1)
  const { flush, refuse } = refusals()
  // A released reserve that was not made again: the disk was full at the end of the previous service.
  let full = (yield* reservedBytes(file)) === 0
  if (full) yield* Effect.logWarning("the disk of the database is full: only reads and deletions are served")

  const fill = Effect.gen(function* () {
    if (!full) {
      full = true
      yield* Effect.logError("the disk of the database is full: writes are refused until it has room")
    }
    if (((yield* reservedBytes(file)) ?? 0) > 0) yield* releaseReserve(file)
  })

  const look = Effect.gen(function* () {
    const space = yield* spaceOf(folder)
    if (space.free < FULL_BELOW) return yield* fill
    const reserved = yield* holdReserve(file, space)
    if (full && reserved) {
      full = false
      yield* flush
    }
  }).pipe(
    oneAtATime.withPermit,
    Effect.catch((error) => Effect.logDebug(`the disk of the database cannot be read: ${error.message}`))
  )
  yield* look.pipe(Effect.repeat(Schedule.spaced(LOOK_EVERY)), Effect.forkScoped)

  const release = fill.pipe(
    oneAtATime.withPermit,
    Effect.catch((error) => Effect.logWarning(`the reserve cannot be released: ${error.message}`))
  )
  return DatabaseDisk.of({
    isFull: () => full,
    refuses: () => full,
    refuse,
    failed: (writes) => Effect.andThen(release, refuse(writes)),
    committed: Effect.void
  })
})

export class DiskError extends Data.TaggedError("DiskError")<{ readonly message: string }> {}

const attempt = <A>(run: () => Promise<A>): Effect.Effect<A, DiskError> =>
  Effect.tryPromise({
    try: run,
    catch: (cause) => new DiskError({ message: cause instanceof Error ? cause.message : String(cause) })
  })

const MIB = 1024 * 1024

/** Space of a disk, in bytes. */
export interface Space {
  /** The space that this process may use: root may use what a file system keeps for it. */
  readonly free: number
  readonly total: number
}

export const spaceOf = (folder: string): Effect.Effect<Space, DiskError> =>
  Effect.map(
    attempt(() => statfs(folder)),
    ({ bavail, bfree, blocks, bsize }) => ({
      free: (process.getuid?.() === 0 ? bfree : bavail) * bsize,
      total: blocks * bsize
    })
  )

/** Returns the reserve of a database, beside it: `muster.reserve` for `muster.db`. */
export const reserveFileOf = (database: string): string => `${database.replace(/\.db$/, "")}.reserve`

/** Returns the size of the reserve in bytes, if there is one; it is 0 after the release. */
export const reservedBytes = (file: string): Effect.Effect<number | undefined> =>
  attempt(() => stat(file)).pipe(
    Effect.map(({ size }) => size),
    Effect.orElseSucceed(() => undefined)
  )

/** Releases the space of the reserve. The empty file records, also for the next start, that the disk was full. */
export const releaseReserve = (file: string): Effect.Effect<void, DiskError> =>
  attempt(() => truncate(file, 0))

/** Writes block by block, since a hole would reserve nothing, and random bytes, since a file system may compress. */
const writeReserve = (file: string, bytes: number) =>
  Effect.scoped(
    Effect.gen(function* () {
      const handle = yield* Effect.acquireRelease(
        attempt(() => open(file, "w", 0o600)),
        (opened) => Effect.ignore(attempt(() => opened.close()))
      )
      const noise = randomBytes(MIB)
      for (let left = bytes; left > 0; left -= MIB) {
        yield* attempt(() => handle.writeFile(noise.subarray(0, Math.min(left, MIB))))
      }
      yield* attempt(() => handle.sync())
    })
  )

/** Makes the reserve, durably. If the disk has no room for it, the earlier state remains. */
const makeReserve = Effect.fnUntraced(function* (file: string, bytes: number) {
  const before = yield* reservedBytes(file)
  yield* writeReserve(file, bytes).pipe(
    Effect.onError(() =>
      Effect.ignore(before === undefined ? attempt(() => unlink(file)) : releaseReserve(file))
    )
  )
})

/** Makes the reserve if it is not whole and the disk has room for it. Returns whether the reserve is whole. */
export const holdReserve = Effect.fnUntraced(function* (file: string, { free, total }: Space) {
  if (((yield* reservedBytes(file)) ?? 0) >= reserveSize(total)) return true
  if (free < roomForReserve(total)) return false
  yield* makeReserve(file, reserveSize(total))
  return true
})

/** Releases the reserve if the disk is full, before a service opens its files. */
export const makeRoomToStart = Effect.fnUntraced(function* (file: string, folder: string) {
  const { free } = yield* spaceOf(folder)
  if (free >= FULL_BELOW || ((yield* reservedBytes(file)) ?? 0) === 0) return
  yield* releaseReserve(file)
  yield* Effect.logWarning("the disk is full: the reserve was released for the start").pipe(
    Effect.annotateLogs({ file })
  )
})
