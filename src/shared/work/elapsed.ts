/** Elapsed time. The wall clock can be set by hours at any moment, so no timeout, delay or measurement uses it. */
import { Clock, Effect } from "effect"

const millisOf = (nanos: bigint) => Number(nanos / 1_000_000n)

/** Milliseconds of a monotonic clock. Only the difference of two readings has a meaning. */
export const elapsedMillis: Effect.Effect<number> = Effect.map(Clock.monotonicTimeNanos, millisOf)

/** {@link elapsedMillis} by a clock that is at hand. */
export const elapsedMillisOf = (clock: Clock.Clock): number => millisOf(clock.monotonicTimeNanosUnsafe())
