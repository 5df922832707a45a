/**
 * Time that passes. The wall clock says what time it is, and can be set by hours at any moment: nothing that waits,
 * measures or gives up goes by it.
 */
import { Clock, Effect } from "effect"

const millisOf = (nanos: bigint) => Number(nanos / 1_000_000n)

/** Milliseconds of a clock that only goes on, since some moment: two of them say how long something took. */
export const elapsedMillis: Effect.Effect<number> = Effect.map(Clock.monotonicTimeNanos, millisOf)

/** A clock whose time of day is as steady as its timers, and says nothing of the date. */
const steady = (clock: Clock.Clock): Clock.Clock => ({
  currentTimeMillisUnsafe: () => millisOf(clock.monotonicTimeNanosUnsafe()),
  currentTimeMillis: Effect.map(clock.monotonicTimeNanos, millisOf),
  currentTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe(),
  currentTimeNanos: clock.monotonicTimeNanos,
  monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe(),
  monotonicTimeNanos: clock.monotonicTimeNanos,
  sleep: (duration) => clock.sleep(duration)
})

/** For libraries that reckon how long something lasts by the wall clock. */
export const onElapsedTime = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.clockWith((clock) => Effect.provideService(self, Clock.Clock, steady(clock)))
