/**
 * Resources of a scope, for effects without requirements. `Effect.acquireRelease` and `Effect.addFinalizer` copy the
 * context of their caller, with all services of the process: several kilobytes for each file that is opened.
 */
import { Effect, type Exit, Scope } from "effect"

/** Runs an effect at the end of the scope. */
export const atScopeEnd = (
  end: (exit: Exit.Exit<unknown, unknown>) => Effect.Effect<unknown>
): Effect.Effect<void, never, Scope.Scope> =>
  Effect.flatMap(Effect.scope, (scope) => Scope.addFinalizerExit(scope, end))

/** Acquires a resource, which the end of the scope releases. */
export const inScope = <A, E, R>(
  acquire: Effect.Effect<A, E, R>,
  release: (resource: A) => Effect.Effect<unknown>
): Effect.Effect<A, E, R | Scope.Scope> =>
  Effect.uninterruptible(Effect.tap(acquire, (resource) => atScopeEnd(() => release(resource))))
