/** What helps after a failed file operation: hints, and room on the disk. */

import { type Cause, Duration, Effect, Exit, Semaphore } from "effect"
import { megabytes } from "../../contract/domain/Limits.ts"
import { reserveSize } from "../../shared/work/diskSpace.ts"
import { diskOf, IoError, isDiskFull } from "./fsio.ts"

/** Hints by system code, as clauses before `, then start it again`. */
const remedies: Readonly<Record<string, string>> = {
  // A project quota of XFS has the code of a full disk.
  ENOSPC: "free space on the disk of the data folder, or raise limits.disk_space if the disk has room",
  EDQUOT: "raise limits.disk_space or the disk quota",
  EACCES: "give the user of the daemon access to it",
  EPERM: "give the user of the daemon the permission for it",
  EROFS: "mount the file system read-write",
  EMFILE: "raise the open file limit of the daemon",
  EIO: "check the disk"
}

/** Returns the hint, if there is a general one. */
export const remedyOf = (error: { readonly code?: string; readonly next?: string }): string | undefined =>
  error.next ?? remedies[error.code ?? ""]

/** Whether the definition of the server is wrong, so that a retry cannot help. */
export const isPermanent = (error: { readonly code?: string; readonly next?: string }): boolean =>
  error.code === "REFUSED" && error.next === undefined

/** Replaces host paths of the data folder in a message by relative ones. */
export const fromDataFolder = (message: string, dataDir: string): string =>
  message.replaceAll(`${dataDir}/`, "").replaceAll(dataDir, "the data folder")

/** Whether a disk or quota has no room: what fails for it may work once there is room. */
export const isNoRoom = ({ code }: { readonly code?: string }): boolean =>
  code === "ENOSPC" || code === "EDQUOT"

/** Finds something out once for all callers. A failure is tried again, unless the disk of `folder` is still full. */
export const foundOnce = Effect.fnUntraced(function* <A, E, R>(folder: string, find: Effect.Effect<A, E, R>) {
  const turn = yield* Semaphore.make(1)
  let failed: Cause.Cause<E> | undefined
  const attempt = Effect.gen(function* () {
    if (failed !== undefined && (yield* isDiskFull(folder))) return yield* Effect.failCause(failed)
    return yield* find
  }).pipe(
    Effect.tapCause((cause) =>
      Effect.sync(() => {
        failed = cause
      })
    ),
    turn.withPermit
  )
  return yield* Effect.cachedWithTTL(attempt, (exit) =>
    Exit.isSuccess(exit) ? Duration.infinity : Duration.zero
  )
})

/** Fails if the disk of a folder has less free space than must stay free. */
export const checkFreeSpace = Effect.fnUntraced(function* (folder: string, free?: number) {
  const disk = yield* diskOf(folder)
  const reserved = free ?? reserveSize(disk.total)
  if (disk.free >= reserved) return
  return yield* new IoError({
    code: "ENOSPC",
    message: `the files do not fit on the disk of the node: ${megabytes(disk.free)} are free, of which ${megabytes(reserved)} are kept`
  })
})
