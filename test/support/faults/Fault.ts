import { Data, Effect } from "effect"

export class FaultFailed extends Data.TaggedError("FaultFailed")<{ readonly message: string }> {}

/**
 * Something that can be broken and mended again while all else goes on. Both ends may be asked for at any time and
 * more than once: breaking what is broken and mending what is whole does nothing. Whatever is broken when the scope
 * of its maker ends is mended, or gone, by then.
 */
export interface Fault {
  /** What it does, for a test's title or log: `PostgreSQL is frozen`. */
  readonly name: string
  readonly inject: Effect.Effect<void, FaultFailed>
  readonly heal: Effect.Effect<void, FaultFailed>
}

/** Runs something while a fault is on; it is mended again also where that fails. */
export const during = <A, E, R>(
  fault: Fault,
  use: Effect.Effect<A, E, R>
): Effect.Effect<A, E | FaultFailed, R> =>
  Effect.acquireUseRelease(
    fault.inject,
    () => use,
    () => fault.heal
  )
