import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { makePace } from "../../../src/daemon/backups/pack.ts"

const MIB = 1024 * 1024

/** Reads chunks at a pace; returns the number that were read. */
const reader = (rate: number, chunks: number) => {
  const pace = makePace(rate)
  let read = 0
  const work = Effect.repeat(
    Effect.andThen(
      Effect.sync(() => void read++),
      pace(MIB)
    ),
    { times: chunks - 1 }
  )
  return { work, read: () => read }
}

describe("spec 12.3: MUSTER_BACKUP_RATE", () => {
  it.effect("a rate bounds the bytes that are read in a time, and a pause gives no burst", () =>
    Effect.gen(function* () {
      const { read, work } = reader(MIB, 20)
      const fiber = yield* Effect.forkChild(work)
      yield* TestClock.adjust("5 seconds")
      assert.isAtMost(read(), 6)
      assert.isAtLeast(read(), 5)
      yield* TestClock.adjust("15 seconds")
      yield* Fiber.join(fiber)
      const later = reader(MIB, 20)
      yield* TestClock.adjust("1 hour")
      yield* Effect.forkChild(later.work)
      yield* TestClock.adjust("1 second")
      assert.isAtMost(later.read(), 2)
    })
  )

  it.effect("0 is no limit", () =>
    Effect.gen(function* () {
      const { read, work } = reader(0, 100)
      yield* work
      assert.strictEqual(read(), 100)
    })
  )
})
