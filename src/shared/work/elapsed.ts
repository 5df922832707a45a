/** Elapsed time. The wall clock can be set by hours at any moment, so no timeout, delay or measurement uses it. */
import { Clock, Effect } from "effect"

const millisOf = (nanos: bigint) => Number(nanos / 1_000_000n)

/** Milliseconds of a monotonic clock. Only the difference of two readings has a meaning. */
export const elapsedMillis: Effect.Effect<number> = Effect.map(Clock.monotonicTimeNanos, millisOf)

/** {@link elapsedMillis} by a clock that is at hand. */
export const elapsedMillisOf = (clock: Clock.Clock): number => millisOf(clock.monotonicTimeNanosUnsafe())

/** A clock whose time of day follows the monotonic clock; its date has no meaning. */
const steady = (clock: Clock.Clock): Clock.Clock => ({
  currentTimeMillisUnsafe: () => millisOf(clock.monotonicTimeNanosUnsafe()),
  currentTimeMillis: Effect.map(clock.monotonicTimeNanos, millisOf),
  currentTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe(),
  currentTimeNanos: clock.monotonicTimeNanos,
  monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe(),
  monotonicTimeNanos: clock.monotonicTimeNanos,
  sleep: (duration) => clock.sleep(duration)
})

/** Runs an effect of a library that measures durations with the wall clock on the monotonic clock. */
export const onElapsedTime = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.clockWith((clock) => Effect.provideService(self, Clock.Clock, steady(clock)))
