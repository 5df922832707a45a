import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Layer } from "effect"
import { CircuitBreaker, RateLimiter } from "effect/persistence"
import { TestClock } from "effect/testing"
import { limiterStore } from "../../../src/controlPlane/http/limiterStore.ts"
import { breakerStore } from "../../../src/controlPlane/nodes/remote/RemoteDaemons.ts"
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

  for (const hours of [2, -2]) {
    it.effect(`by ${hours} h: an unreachable node is called again after 5 s, not before`, () =>
      Effect.gen(function* () {
        const { setBy, wall } = yield* settable
        yield* Effect.gen(function* () {
          const breaker = yield* CircuitBreaker.CircuitBreaker
          const call = breaker.execute({ key: "n1" })
          yield* Effect.flip(call(Effect.fail("no answer")))
          yield* setBy(hours)
          yield* TestClock.adjust("4 seconds")
          assert.notStrictEqual(yield* Effect.flip(call(Effect.succeed("too early"))), "no answer")
          yield* TestClock.adjust("1 second")
          assert.strictEqual(yield* call(Effect.succeed("answered")), "answered")
        }).pipe(
          Effect.provide(
            CircuitBreaker.layer({
              tripPolicy: CircuitBreaker.consecutive(1),
              openDuration: "5 seconds"
            }).pipe(Layer.provide(breakerStore))
          ),
          Effect.provideService(Clock.Clock, wall)
        )
      })
    )

    it.effect(`by ${hours} h: a rate limit per minute still takes a minute`, () =>
      Effect.gen(function* () {
        const { setBy, wall } = yield* settable
        yield* Effect.gen(function* () {
          const limiter = yield* RateLimiter.RateLimiter
          const take = limiter.consume({ key: "k", limit: 2, window: "1 minute", onExceeded: "fail" })
          yield* take
          yield* take
          yield* Effect.flip(take)
          yield* setBy(hours)
          yield* TestClock.adjust("59 seconds")
          yield* Effect.flip(take)
          yield* TestClock.adjust("1 second")
          yield* take
        }).pipe(
          Effect.provide(RateLimiter.layer.pipe(Layer.provide(limiterStore))),
          Effect.provideService(Clock.Clock, wall)
        )
      })
    )
  }
})
