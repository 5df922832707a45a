import { assert, describe, it } from "@effect/vitest"
import { Effect, FiberSet } from "effect"
import { TestClock } from "effect/testing"
import { OnDemand } from "../../../src/shared/work/OnDemand.ts"

/** Work on a number of items, one a step; `step` may be given. */
const scene = (step?: Effect.Effect<void>) =>
  Effect.gen(function* () {
    const fibers = yield* FiberSet.make<void>()
    const fork = yield* FiberSet.runtime(fibers)()
    const work = new OnDemand()
    const seen = { left: 0, done: 0 }
    const one = Effect.andThen(
      step ?? Effect.yieldNow,
      Effect.sync(() => {
        seen.left -= 1
        seen.done += 1
      })
    )
    const add = (items: number) => {
      seen.left += items
      work.start(fork, () => seen.left > 0, one)
    }
    return { add, fibers: FiberSet.size(fibers), idle: FiberSet.awaitEmpty(fibers), seen, work }
  })

describe("work on demand", () => {
  it.effect("has a fiber only while there is something to do", () =>
    Effect.gen(function* () {
      const { add, fibers, idle, seen } = yield* scene()
      add(0)
      assert.strictEqual(yield* fibers, 0)
      add(3)
      assert.strictEqual(yield* fibers, 1)
      yield* idle
      assert.strictEqual(seen.done, 3)
    })
  )

  it.effect("is started once, however often it is asked for", () =>
    Effect.gen(function* () {
      const { add, fibers, idle, seen } = yield* scene()
      add(1)
      add(1)
      assert.strictEqual(yield* fibers, 1)
      yield* idle
      assert.strictEqual(seen.done, 2)
    })
  )

  it.effect("starts again after it was idle, also after steps that do not wait", () =>
    Effect.gen(function* () {
      const { add, idle, seen } = yield* scene(Effect.void)
      add(1)
      yield* idle
      add(1)
      yield* idle
      assert.strictEqual(seen.done, 2)
    })
  )

  it.effect("repeats a step with a defect after a second", () =>
    Effect.gen(function* () {
      let failures = 1
      const { add, idle, seen } = yield* scene(
        Effect.suspend(() => (failures-- > 0 ? Effect.die("broken") : Effect.void))
      )
      add(1)
      yield* TestClock.adjust("999 millis")
      assert.strictEqual(seen.done, 0)
      yield* TestClock.adjust("1 millis")
      yield* idle
      assert.strictEqual(seen.done, 1)
    })
  )

  it.effect("ends when it is stopped, and does not start again", () =>
    Effect.gen(function* () {
      const { add, fibers, seen, work } = yield* scene(Effect.never)
      add(1)
      yield* work.stop
      assert.strictEqual(yield* fibers, 0)
      add(1)
      assert.strictEqual(yield* fibers, 0)
      assert.strictEqual(seen.done, 0)
    })
  )
})
