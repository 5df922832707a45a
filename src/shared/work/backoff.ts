import { Duration, Effect, Random, Schedule } from "effect"

export interface BackoffOptions {
  /** The first delay; each further one is twice as long, up to `longest`. */
  readonly first: Duration.Input
  readonly longest: Duration.Input
}

/** The retry schedule: delays double. Half is random, so that clients that failed together retry apart. */
export const backoff = ({ first, longest }: BackoffOptions): Schedule.Schedule<Duration.Duration> =>
  Schedule.min([Schedule.exponential(first), Schedule.spaced(longest)]).pipe(
    Schedule.modifyDelay(({ duration }) =>
      Effect.map(Random.nextBetween(0.5, 1), (factor) => Duration.times(duration, factor))
    )
  )

/** Makes an effect that sleeps for the next delay of a schedule each time it runs. A schedule that ends is a defect. */
export const makePause = (schedule: Schedule.Schedule<unknown>): Effect.Effect<Effect.Effect<void>> =>
  Effect.map(Schedule.toStepWithSleep(schedule), (step) => Effect.asVoid(Effect.orDie(step(undefined))))
