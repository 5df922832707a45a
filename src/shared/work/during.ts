import { Effect } from "effect"

/** Runs an effect between two plain functions; `end` runs however the effect ends, if `begin` has run. */
export const during =
  (begin: () => void, end: () => void) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.suspend(() => {
      let begun = false
      // An interruption may come before the beginning.
      return Effect.onExitPrimitive(
        Effect.suspend(() => {
          begun = true
          begin()
          return self
        }),
        () => {
          if (begun) end()
          return undefined
        }
      )
    })
