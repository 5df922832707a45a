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
