import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { TestClock } from "effect/testing"
import { elapsedMillis } from "../../../src/shared/work/elapsed.ts"

const HOUR = 3_600_000

/** A wall clock that a test can set, independent of elapsed time. */
const settable = Effect.map(Clock.Clock, (clock) => {
  let set = 0
  const wall: Clock.Clock = {
    ...clock,
    currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe() + set,
    currentTimeMillis: Effect.map(clock.currentTimeMillis, (now) => now + set)
  }
  return {
    wall,
    setBy: (hours: number) =>
      Effect.sync(() => {
        set += hours * HOUR
      })
  }
})

describe("spec 9.6: a clock is set", () => {
  it.effect("elapsed time is independent of the wall clock", () =>
    Effect.gen(function* () {
      const { setBy, wall } = yield* settable
      yield* Effect.gen(function* () {
        const before = yield* elapsedMillis
        yield* setBy(-2)
        yield* TestClock.adjust("3 seconds")
        yield* setBy(4)
        assert.strictEqual((yield* elapsedMillis) - before, 3000)
      }).pipe(Effect.provideService(Clock.Clock, wall))
    })
  )
})
