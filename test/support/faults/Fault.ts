import { Data, Effect } from "effect"

export class FaultFailed extends Data.TaggedError("FaultFailed")<{ readonly message: string }> {}

/**
 * A fault that can be injected and healed during a test. Both are idempotent and may be called at any time. The end of
 * the scope that made the fault heals it.
 */
export interface Fault {
  /** A description for the title or log of a test: `PostgreSQL is frozen`. */
  readonly name: string
  readonly inject: Effect.Effect<void, FaultFailed>
  readonly heal: Effect.Effect<void, FaultFailed>
}

/** Runs an effect during a fault and heals the fault afterwards, also on failure. */
export const during = <A, E, R>(
  fault: Fault,
  use: Effect.Effect<A, E, R>
): Effect.Effect<A, E | FaultFailed, R> =>
  Effect.acquireUseRelease(
    fault.inject,
    () => use,
    () => fault.heal
  )
