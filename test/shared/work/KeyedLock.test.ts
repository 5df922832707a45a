import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Latch } from "effect"
import { makeKeyedLock } from "../../../src/shared/work/KeyedLock.ts"

/** Effects that note when they begin, and end once they may. */
const scene = Effect.sync(() => {
  const begun: Array<string> = []
  const run = (name: string, gate: Latch.Latch) =>
    Effect.andThen(
      Effect.sync(() => begun.push(name)),
      gate.await
    )
  return { begun, run }
})

const settled = Effect.repeat(Effect.yieldNow, { times: 10 })

describe("keyed lock", () => {
  it.effect("runs the effects of a key in their order, those of other keys beside them", () =>
    Effect.gen(function* () {
      const { begun, run } = yield* scene
      const lock = makeKeyedLock()
      const gate = yield* Latch.make(false)
      for (const name of ["a1", "a2", "b1", "a3"]) {
        yield* Effect.forkChild(lock.withLock(name.slice(0, 1))(run(name, gate)))
      }
      yield* settled
      assert.deepStrictEqual(begun, ["a1", "b1"])
      yield* gate.open
      yield* settled
      assert.deepStrictEqual(begun, ["a1", "b1", "a2", "a3"])
    })
  )

  it.effect("runs as many effects of a key at a time as it has permits", () =>
    Effect.gen(function* () {
      const { begun, run } = yield* scene
      const lock = makeKeyedLock(2)
      const gates = yield* Effect.all([Latch.make(false), Latch.make(false), Latch.make(false)])
      for (const [n, gate] of gates.entries()) {
        yield* Effect.forkChild(lock.withLock("a")(run(`${n}`, gate)))
      }
      yield* settled
      assert.deepStrictEqual(begun, ["0", "1"])
      yield* gates[1].open
      yield* settled
      assert.deepStrictEqual(begun, ["0", "1", "2"])
    })
  )

  it.effect("passes the lock on after a failure, and if the effect or one that waits is interrupted", () =>
    Effect.gen(function* () {
      const { begun, run } = yield* scene
      const { withLock } = makeKeyedLock()
      const gate = yield* Latch.make(false)
      assert.strictEqual(yield* Effect.flip(withLock("a")(Effect.fail("broken"))), "broken")
      const holder = yield* Effect.forkChild(withLock("a")(run("holder", gate)))
      const waiting = yield* Effect.forkChild(withLock("a")(run("waiting", gate)))
      const last = yield* Effect.forkChild(withLock("a")(run("last", gate)))
      yield* settled
      yield* Fiber.interrupt(waiting)
      yield* Fiber.interrupt(holder)
      yield* settled
      assert.deepStrictEqual(begun, ["holder", "last"])
      yield* gate.open
      yield* Fiber.join(last)
      yield* withLock("a")(Effect.void)
    })
  )

  it.effect("passes the lock through a long row of effects that do not wait", () =>
    Effect.gen(function* () {
      const lock = makeKeyedLock()
      let done = 0
      const count = lock.withLock("a")(
        Effect.sync(() => {
          done += 1
        })
      )
      const gate = yield* Latch.make(false)
      yield* Effect.forkChild(lock.withLock("a")(gate.await), { startImmediately: true })
      const all = yield* Effect.forkChild(
        Effect.all(
          Array.from({ length: 20_000 }, () => count),
          {
            concurrency: "unbounded",
            discard: true
          }
        )
      )
      yield* settled
      yield* gate.open
      yield* Fiber.join(all)
      assert.strictEqual(done, 20_000)
    })
  )
})
