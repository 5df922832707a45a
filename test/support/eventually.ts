/** The poll helper of the tests. */
import { Effect } from "effect"
import { ServiceFailed } from "./Service.ts"

/** Maximum pause between two polls, in milliseconds; the pause doubles up to it. */
const LONGEST_PAUSE = 20

// Captured before a test replaces the timers.
const { clearTimeout, setTimeout } = globalThis

/** Sleeps on the real clock, also under `TestClock`. */
const pause = (millis: number) =>
  Effect.callback<void>((resume) => {
    const timer = setTimeout(() => resume(Effect.void), millis)
    return Effect.sync(() => clearTimeout(timer))
  })

/** The value to poll: an effect, or a function without side effects. */
type Read<A, E, R> = Effect.Effect<A, E, R> | (() => A)

const poll = <A, E, R>(read: Read<A, E, R>, until: (value: A) => boolean, seconds: number) =>
  Effect.suspend(() => {
    const once = Effect.isEffect(read) ? read : Effect.sync(read)
    let last: A | undefined
    const polling = Effect.gen(function* () {
      for (let millis = 1; ; millis = Math.min(2 * millis, LONGEST_PAUSE)) {
        const value = yield* once
        if (until(value)) return { value }
        last = value
        yield* pause(millis)
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
 * @error ServiceFailed with the last value, after the timeout
 */
export const eventually = <A, E = never, R = never>(
  read: Read<A, E, R>,
  until: (value: A) => boolean = Boolean,
  within: `${number} seconds` = "90 seconds"
): Effect.Effect<A, E | ServiceFailed, R> =>
  Effect.flatMap(poll(read, until, Number.parseFloat(within)), (seen) =>
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
