import { assert, describe, it } from "@effect/vitest"
import { Cause, Effect, Fiber } from "effect"
import fc from "fast-check"
import { Outbox } from "../../src/events/Outbox.ts"

const outcome = <A>(outbox: Outbox<A>) =>
  outbox.pull.pipe(Effect.catch((end) => Effect.succeed(Cause.isDone(end) ? "done" : "failed")))

describe("decisions, section 6: a bound in bytes for each subscriber", () => {
  it.effect("hands out all that waits at once, and waits when nothing does", () =>
    Effect.gen(function* () {
      const outbox = new Outbox<number>(100)
      outbox.offerAllUnsafe([1, 2], 20)
      outbox.offerAllUnsafe([3], 10)
      assert.deepStrictEqual(yield* outbox.pull, [1, 2, 3])
      const waiting = yield* Effect.forkChild(outbox.pull, { startImmediately: true })
      assert.isUndefined(waiting.pollUnsafe())
      outbox.offerAllUnsafe([4], 10)
      assert.deepStrictEqual(yield* Fiber.join(waiting), [4])
    })
  )

  it.effect("what was handed out counts until the next pull", () =>
    Effect.gen(function* () {
      const outbox = new Outbox<number>(100)
      outbox.offerAllUnsafe([1], 60)
      yield* outbox.pull
      outbox.offerAllUnsafe([2], 40)
      assert.isTrue(outbox.isOpen)
      yield* outbox.pull
      outbox.offerAllUnsafe([3], 60)
      assert.isTrue(outbox.isOpen)
      outbox.offerAllUnsafe([4], 1)
      assert.isTrue(outbox.overflowed)
    })
  )

  it.effect("over the bound everything is dropped and nothing more is taken", () =>
    Effect.gen(function* () {
      const outbox = new Outbox<number>(100)
      outbox.offerAllUnsafe([1], 100)
      outbox.offerAllUnsafe([2], 1)
      yield* outbox.awaitCutOff
      outbox.offerAllUnsafe([3], 1)
      assert.strictEqual(yield* outcome(outbox), "done")
      assert.strictEqual(yield* outcome(outbox), "done")
    })
  )

  it.effect("after the end, what waits is still handed out", () =>
    Effect.gen(function* () {
      const outbox = new Outbox<number>(100)
      outbox.offerAllUnsafe([1], 1)
      outbox.endUnsafe()
      outbox.offerAllUnsafe([2], 1)
      assert.deepStrictEqual(yield* outbox.pull, [1])
      assert.strictEqual(yield* outcome(outbox), "done")
      assert.isFalse(outbox.overflowed)
    })
  )

  it.effect("a wake answers with nothing, once", () =>
    Effect.gen(function* () {
      const outbox = new Outbox<number>(100)
      outbox.wakeUnsafe()
      assert.deepStrictEqual(yield* outbox.pull, [])
      const waiting = yield* Effect.forkChild(outbox.pull, { startImmediately: true })
      assert.isUndefined(waiting.pollUnsafe())
      yield* Fiber.interrupt(waiting)
    })
  )

  it.effect("interrupted pulls lose nothing", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(fc.array(fc.boolean(), { maxLength: 40 }), (interruptions) =>
          Effect.runPromise(
            Effect.gen(function* () {
              const outbox = new Outbox<number>(1_000_000)
              const got: Array<number> = []
              const take = Effect.tap(outbox.pull, (batch) => Effect.sync(() => got.push(...batch)))
              for (const [i, interrupted] of interruptions.entries()) {
                const fiber = yield* Effect.forkChild(take)
                if (interrupted) yield* Effect.yieldNow
                outbox.offerAllUnsafe([i], 1)
                yield* interrupted ? Fiber.interrupt(fiber) : Fiber.join(fiber)
              }
              outbox.endUnsafe()
              yield* Effect.ignore(Effect.forever(take))
              assert.deepStrictEqual(got, [...interruptions.keys()])
            })
          )
        ),
        { numRuns: 50 }
      )
    )
  )
})
