import { afterEach, assert, beforeEach, describe, it, vi } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { inSlices, pause } from "../../../src/shared/work/slices.ts"

/** Looks at the clock in a slice: each takes 1 ms. */
const MOST = 5

beforeEach(() => {
  let now = 0
  vi.spyOn(performance, "now").mockImplementation(() => now++)
})
afterEach(() => {
  vi.restoreAllMocks()
})

/** Counts the steps of each turn of the event loop. */
const turns = () => {
  const counts: Array<number> = []
  let steps = 0
  const next = () => {
    counts.push(steps)
    steps = 0
    if (counts.length < 1_000) setImmediate(next)
  }
  setImmediate(next)
  return { counts, step: () => steps++ }
}

describe("spec 1.9: one request never holds the event loop", () => {
  it.live("the steps of several pieces of long work share the time of a turn, and each has its share", () =>
    Effect.gen(function* () {
      const { counts, step } = turns()
      const order: Array<string> = []
      const generated = (name: string) =>
        inSlices(function* () {
          for (let n = 0; n < 100; n++) {
            step()
            order.push(name)
            yield
          }
          return name
        })
      const effectful = Effect.forEach(Array(100), () =>
        Effect.andThen(
          pause,
          Effect.sync(() => {
            step()
            order.push("effectful")
          })
        )
      )
      const ended = yield* Effect.all([generated("one"), generated("other"), effectful], {
        concurrency: "unbounded"
      })
      assert.deepStrictEqual(ended.slice(0, 2), ["one", "other"])
      assert.lengthOf(order, 300)
      // The first slice may end in the turn in which the next one begins.
      assert.isAtMost(Math.max(...counts), 2 * MOST + 2)
      const half = order.slice(0, 150)
      for (const name of ["one", "other", "effectful"]) assert.include(half, name)
    })
  )

  it("work that fits into a slice completes at once", () => {
    const work = inSlices(function* () {
      yield
      return "done"
    })
    assert.strictEqual(Effect.runSync(work), "done")
  })

  it.live("work that is interrupted releases what it holds", () =>
    Effect.gen(function* () {
      let released = false
      const work = inSlices(function* () {
        try {
          for (;;) yield
        } finally {
          released = true
        }
      })
      const fiber = yield* Effect.forkChild(work, { startImmediately: true })
      yield* Effect.yieldNow
      yield* Fiber.interrupt(fiber)
      assert.isTrue(released)
    })
  )
})
