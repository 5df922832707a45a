import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Exit, Fiber, Scope } from "effect"
import { TestClock } from "effect/testing"
import { makeDeadlines } from "../../src/http/deadlines.ts"

/** Joins effects with a deadline each, in fibers of their own; `late` is the result after a deadline. */
const joined = Effect.fnUntraced(function* (
  given: ReadonlyArray<readonly [work: Effect.Effect<string>, millis: number]>
) {
  const deadlines = yield* makeDeadlines
  return yield* Effect.forEach(given, ([work, millis]) =>
    Effect.gen(function* () {
      const fiber = yield* Effect.forkScoped(work)
      const waiting = yield* Effect.forkScoped(deadlines.join(fiber, millis, Effect.succeed("late")))
      yield* Effect.yieldNow
      return { fiber, waiting }
    })
  )
})

const resultOf = (waiting: Fiber.Fiber<string>) => {
  const exit = waiting.pollUnsafe()
  return exit === undefined || Exit.isFailure(exit) ? exit : exit.value
}

describe("spec 1.7: timeouts", () => {
  it.effect("each fiber has its deadline, in whatever order they are set", () =>
    Effect.gen(function* () {
      const all = yield* joined(
        [500, 100, 300, 100, 900, 50].map((millis) => [Effect.never, millis] as const)
      )
      const results: Array<ReadonlyArray<string>> = []
      for (const millis of [49, 1, 50, 200, 200, 399, 1]) {
        yield* TestClock.adjust(millis)
        results.push(all.map(({ waiting }) => (resultOf(waiting) === "late" ? "late" : "waits")))
      }
      const late = (...at: ReadonlyArray<number>) => all.map((_, n) => (at.includes(n) ? "late" : "waits"))
      assert.deepStrictEqual(results, [
        late(),
        late(5),
        late(5, 1, 3),
        late(5, 1, 3, 2),
        late(5, 1, 3, 2, 0),
        late(5, 1, 3, 2, 0),
        late(5, 1, 3, 2, 0, 4)
      ])
      for (const { fiber } of all) assert.isDefined(fiber.pollUnsafe())
    })
  )

  it.effect(
    "a fiber that ends in time has its own result, and its deadline does not stop those after it",
    () =>
      Effect.gen(function* () {
        const [early, never] = yield* joined([
          [Effect.delay(Effect.succeed("own"), 10), 100],
          [Effect.never, 200]
        ])
        yield* TestClock.adjust(10)
        assert.strictEqual(early && resultOf(early.waiting), "own")
        yield* TestClock.adjust(189)
        assert.isUndefined(never && resultOf(never.waiting))
        yield* TestClock.adjust(1)
        assert.strictEqual(never && resultOf(never.waiting), "late")
      })
  )

  it.effect("a deadline after all others have passed is kept", () =>
    Effect.gen(function* () {
      const deadlines = yield* makeDeadlines
      for (const _ of [1, 2]) {
        const fiber = yield* Effect.forkScoped(Effect.never)
        const waiting = yield* Effect.forkScoped(deadlines.join(fiber, 30, Effect.succeed("late")))
        yield* Effect.yieldNow
        yield* TestClock.adjust(30)
        assert.strictEqual(resultOf(waiting), "late")
      }
    })
  )

  it.effect("the result of a deadline waits for the end of its fiber", () =>
    Effect.gen(function* () {
      const [one] = yield* joined([[Effect.uninterruptible(Effect.delay(Effect.succeed("own"), 100)), 30]])
      yield* TestClock.adjust(30)
      assert.isUndefined(one && resultOf(one.waiting))
      yield* TestClock.adjust(70)
      assert.strictEqual(one && resultOf(one.waiting), "late")
    })
  )

  it.effect("an interrupted wait leaves the fiber", () =>
    Effect.gen(function* () {
      const [one] = yield* joined([[Effect.delay(Effect.succeed("own"), 100), 30]])
      if (one === undefined) return assert.fail("nothing is joined")
      yield* Fiber.interrupt(one.waiting)
      yield* TestClock.adjust(100)
      assert.strictEqual(resultOf(one.fiber), "own")
    })
  )

  it.effect("the timer ends with its scope", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const deadlines = yield* Scope.provide(makeDeadlines, scope)
      const fiber = yield* Effect.forkScoped(Effect.never)
      yield* Effect.forkScoped(deadlines.join(fiber, 30, Effect.succeed("late")))
      yield* Effect.yieldNow
      yield* Scope.close(scope, Exit.void)
      yield* TestClock.adjust(60)
      assert.isUndefined(fiber.pollUnsafe())
      assert.strictEqual(yield* Clock.currentTimeMillis, 60)
    })
  )
})
