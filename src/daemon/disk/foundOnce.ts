import { type Cause, Duration, Effect, Exit, Semaphore } from "effect"
import { isDiskFull } from "./fsio.ts"

/** Codes of a disk without room: what fails with one of them may work once there is room. */
const NO_ROOM: ReadonlyArray<string | undefined> = ["ENOSPC", "EDQUOT"]

export const isNoRoom = ({ code }: { readonly code?: string }): boolean => NO_ROOM.includes(code)

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
