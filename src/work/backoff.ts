import { type Duration, Effect, Random, Schedule } from "effect"

export interface BackoffOptions {
  /** The first delay; each further one is twice as long, up to `longest`. */
  readonly first: Duration.Input
  readonly longest: Duration.Input
}

/** A duration in milliseconds, give or take a fifth: clients that failed together do not return together. */
export const jittered = (millis: number): Effect.Effect<number> =>
  Effect.map(Random.nextBetween(0.8, 1.2), (factor) => millis * factor)

/** The retry schedule of everything that is repeated until it succeeds: doubling, bounded, jittered by a fifth. */
export const backoff = ({ first, longest }: BackoffOptions): Schedule.Schedule<Duration.Duration> =>
  Schedule.jittered(Schedule.min([Schedule.exponential(first), Schedule.spaced(longest)]))
