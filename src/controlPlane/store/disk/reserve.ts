import { randomBytes } from "node:crypto"
import { open, stat, statfs, truncate, unlink } from "node:fs/promises"
import { Data, Effect } from "effect"
import { FULL_BELOW, reserveSize, roomForReserve } from "../../../shared/work/diskSpace.ts"

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
