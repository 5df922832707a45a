import { Clock, Duration, Effect } from "effect"

/** The shortest sleep that waits for the test, in ms. */
const LONG = 30 * 60 * 1000

/**
 * Runs an effect whose long sleeps, such as the hour between two rounds, end with `pass`. It sets the wall clock forward
 * by some hours. Shorter sleeps are real.
 */
export const withLongSleeps = <A, E, R>(
  use: (pass: (hours: number) => Effect.Effect<void>) => Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  Effect.flatMap(Clock.Clock, (clock) => {
    let passed = 0
    const sleepers = new Set<() => void>()
    const now = () => clock.currentTimeMillisUnsafe() + passed
    const own: Clock.Clock = Object.assign(Object.create(clock), {
      currentTimeMillisUnsafe: now,
      currentTimeMillis: Effect.sync(now),
      sleep: (duration: Duration.Duration) =>
        Duration.toMillis(duration) < LONG || !Duration.isFinite(duration)
          ? clock.sleep(duration)
          : Effect.callback<void>((resume) => {
              const wake = () => resume(Effect.void)
              sleepers.add(wake)
              return Effect.sync(() => sleepers.delete(wake))
            })
    })
    const pass = (hours: number) =>
      Effect.sync(() => {
        passed += hours * 3_600_000
        const all = [...sleepers]
        sleepers.clear()
        for (const wake of all) wake()
      })
    return Effect.provideService(use(pass), Clock.Clock, own)
  })
