import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Stream } from "effect"
import fc from "fast-check"
import { Outbox } from "../../src/events/Outbox.ts"
import { itemsOf } from "./outboxStream.ts"

const outcome = <A>(outbox: Outbox<A>) =>
  Effect.map(Effect.exit(Stream.runCollect(itemsOf(outbox))), (exit) =>
    Exit.isSuccess(exit) ? exit.value : "too slow"
  )

describe("spec 5.2: a bound in bytes for each subscriber", () => {
  it.effect("a pull takes all queued items at once and waits while the queue is empty", () =>
    Effect.gen(function* () {
      const outbox = new Outbox<number>(100)
      outbox.offerAllUnsafe([1, 2], 20)
      outbox.offerAllUnsafe([3], 10)
      const pull = yield* Stream.toPull(itemsOf(outbox))
      assert.deepStrictEqual(yield* pull, [1, 2, 3])
      const waiting = yield* Effect.forkChild(pull, { startImmediately: true })
      outbox.offerAllUnsafe([], 0)
      assert.isUndefined(waiting.pollUnsafe())
      outbox.offerAllUnsafe([4], 10)
      assert.deepStrictEqual(yield* Fiber.join(waiting), [4])
    }).pipe(Effect.scoped)
  )

  it.effect("pulled bytes count towards the bound until the next pull", () =>
    Effect.gen(function* () {
      const outbox = new Outbox<number>(100)
      const pull = yield* Stream.toPull(itemsOf(outbox))
      outbox.offerAllUnsafe([1], 60)
      yield* pull
      outbox.offerAllUnsafe([2], 40)
      assert.isTrue(outbox.isOpen)
      yield* pull
      outbox.offerAllUnsafe([3], 60)
      assert.isTrue(outbox.isOpen)
      outbox.offerAllUnsafe([4], 1)
      assert.strictEqual(yield* outcome(outbox), "too slow")
    }).pipe(Effect.scoped)
  )

  it.effect("over the bound, the outbox drops its items and accepts no more", () =>
    Effect.gen(function* () {
      const outbox = new Outbox<number>(100)
      outbox.offerAllUnsafe([1], 100)
      outbox.offerAllUnsafe([2], 1)
      yield* outbox.cutOff
      outbox.offerAllUnsafe([3], 1)
      assert.strictEqual(yield* outcome(outbox), "too slow")
      assert.strictEqual(yield* outcome(outbox), "too slow")
    })
  )

  it.effect("queued items can still be pulled after the end", () =>
    Effect.gen(function* () {
      const outbox = new Outbox<number>(100)
      outbox.offerAllUnsafe([1], 1)
      outbox.endUnsafe()
      outbox.offerAllUnsafe([2], 1)
      assert.deepStrictEqual(yield* outcome(outbox), [1])
      assert.deepStrictEqual(yield* outcome(outbox), [])
    })
  )

  it.effect("interrupted pulls lose no item", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(fc.array(fc.boolean(), { maxLength: 40 }), (interruptions) =>
          Effect.runPromise(
            Effect.gen(function* () {
              const outbox = new Outbox<number>(1_000_000)
              const got: Array<number> = []
              const pull = yield* Stream.toPull(itemsOf(outbox))
              const take = Effect.tap(pull, (batch) => Effect.sync(() => got.push(...batch)))
              for (const [i, interrupted] of interruptions.entries()) {
                const fiber = yield* Effect.forkChild(take)
                if (interrupted) yield* Effect.yieldNow
                outbox.offerAllUnsafe([i], 1)
                yield* interrupted ? Fiber.interrupt(fiber) : Fiber.join(fiber)
              }
              outbox.endUnsafe()
              yield* Effect.ignore(Effect.forever(take))
              assert.deepStrictEqual(got, [...interruptions.keys()])
            }).pipe(Effect.scoped)
          )
        ),
        { numRuns: 50 }
      )
    )
  )
})
