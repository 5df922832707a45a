/** Resources of a scope. `Effect.acquireRelease` would copy the caller's context: several kilobytes for each file. */
import { Effect, type Exit, Scope } from "effect"

export const atScopeEnd = (
  end: (exit: Exit.Exit<unknown, unknown>) => Effect.Effect<unknown>
): Effect.Effect<void, never, Scope.Scope> =>
  Effect.flatMap(Effect.scope, (scope) => Scope.addFinalizerExit(scope, end))

export const inScope = <A, E, R>(
  acquire: Effect.Effect<A, E, R>,
  release: (resource: A) => Effect.Effect<unknown>
): Effect.Effect<A, E, R | Scope.Scope> =>
  Effect.uninterruptible(Effect.tap(acquire, (resource) => atScopeEnd(() => release(resource))))

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
