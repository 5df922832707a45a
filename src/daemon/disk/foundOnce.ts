import { Duration, Effect, Exit, Semaphore } from "effect"

/** Codes of a disk without room: what fails with one of them may work once there is room. */
const NO_ROOM: ReadonlyArray<string | undefined> = ["ENOSPC", "EDQUOT"]

/** Whether an operation failed because the disk has no room. */
export const isNoRoom = ({ code }: { readonly code?: string }): boolean => NO_ROOM.includes(code)

/**
 * Finds something out once, however many callers look. A failure is not kept: the next look tries again, one attempt at
 * a time.
 */
export const foundOnce = Effect.fnUntraced(function* <A, E, R>(find: Effect.Effect<A, E, R>) {
  const turn = yield* Semaphore.make(1)
  return yield* Effect.cachedWithTTL(turn.withPermit(find), (exit) =>
    Exit.isSuccess(exit) ? Duration.infinity : Duration.zero
  )
})
