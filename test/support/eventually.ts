/** The poll helper of the tests. */
import { Effect } from "effect"
import { ServiceFailed } from "./Service.ts"

/** Longest pauses between two polls, in milliseconds: of a function, and of an effect, which most often is a request. */
const LONGEST = { function: 20, effect: 50 } as const

/**
 * A pause is a share of the time waited so far: a short wait ends at once, and a long one leaves the processor to what it
 * waits for.
 */
const pauseAfter = (waited: number, longest: number) => Math.min(Math.max(waited / 8, 1), longest)

// Captured before a test replaces the timers.
const { clearTimeout, setTimeout } = globalThis
const now = performance.now.bind(performance)

/** Sleeps on the real clock, also under `TestClock`. */
const pause = (millis: number) =>
  Effect.callback<void>((resume) => {
    const timer = setTimeout(() => resume(Effect.void), millis)
    return Effect.sync(() => clearTimeout(timer))
  })

/** The value to poll: an effect, or a function without side effects. */
type Read<A, E, R> = Effect.Effect<A, E, R> | (() => A)

const poll = <A, E, R>(
  read: Read<A, E, R>,
  until: (value: A) => boolean,
  seconds: number,
  longest: number = Effect.isEffect(read) ? LONGEST.effect : LONGEST.function
) =>
  Effect.suspend(() => {
    const once = Effect.isEffect(read) ? read : Effect.sync(read)
    let last: A | undefined
    const polling = Effect.gen(function* () {
      for (const began = now(); ; ) {
        const value = yield* once
        if (until(value)) return { value }
        last = value
        yield* pause(pauseAfter(now() - began, longest))
      }
    })
    // A poll that hangs is interrupted.
    return Effect.raceFirst(
      polling,
      Effect.map(pause(seconds * 1_000), () => ({ value: undefined, last }))
    )
  })

/**
 * Polls `look` until `until` accepts its value, and returns the value. Both run on the real clock, also under
 * `TestClock`.
 *
 * @param longest the longest pause in milliseconds, for a state that passes soon
 * @error ServiceFailed with the last value, after the timeout
 */
export const eventually = <A, E = never, R = never>(
  read: Read<A, E, R>,
  until: (value: A) => boolean = Boolean,
  within: `${number} seconds` = "90 seconds",
  longest?: number
): Effect.Effect<A, E | ServiceFailed, R> =>
  Effect.flatMap(poll(read, until, Number.parseFloat(within), longest), (seen) =>
    "last" in seen
      ? Effect.fail(
          new ServiceFailed({ message: `not within ${within}; last seen: ${JSON.stringify(seen.last)}` })
        )
      : Effect.succeed(seen.value)
  )

/** Waits until a condition holds. After the timeout, a defect with `what` ends the test. */
export const until = <E = never, R = never>(
  what: string,
  condition: Read<boolean, E, R>,
  seconds = 90
): Effect.Effect<void, E, R> =>
  Effect.flatMap(poll(condition, Boolean, seconds), (seen) =>
    "last" in seen ? Effect.die(new Error(`not within ${seconds} seconds: ${what}`)) : Effect.void
  )
