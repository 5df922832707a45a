import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Option } from "effect"
import { TestClock } from "effect/testing"
import { Journal } from "../../src/store/journal/Journal.ts"
import { IdempotencyRepo } from "../../src/store/repos/IdempotencyRepo.ts"
import { Store } from "../../src/store/Store.ts"
import { append, databases, freshStore } from "./support/database.ts"

const bounds = Effect.flatMap(Journal, (journal) => journal.bounds)
const write = (count: number) =>
  Effect.flatMap(Store, (store) => store.write(append(...Array.from({ length: count }, (_, i) => `s${i}`))))

/** The duty runs in its own fiber, once a minute: looks until it has done its work. */
const eventually = <A, E, R>(read: Effect.Effect<A, E, R>, isDone: (value: A) => boolean) =>
  Effect.gen(function* () {
    for (let tries = 0; tries < 1_000; tries++) {
      const value = yield* read
      if (isDone(value)) return value
      // The clock of the test does not tell when a database has answered.
      yield* Effect.promise(() => new Promise<void>((resolve) => setTimeout(resolve, 5)))
      yield* TestClock.adjust("1 minute")
    }
    return yield* Effect.die(new Error("never happened"))
  })

describe.each(databases)("decisions, section 6: the journal keeps 24 h or 1,000,000 events (%s)", (kind) => {
  it.effect("removes what is older, keeps the rest and the numbering", () =>
    Effect.gen(function* () {
      yield* write(12_000)
      yield* TestClock.adjust("23 hours")
      yield* write(3)
      assert.deepStrictEqual(yield* bounds, { oldest: 1, newest: 12_003 })
      yield* TestClock.adjust("62 minutes")
      const left = yield* eventually(bounds, ({ oldest }) => oldest === 12_001)
      assert.strictEqual(left.newest, 12_003)
      yield* TestClock.adjust("24 hours")
      const none = yield* eventually(bounds, ({ oldest }) => oldest === 12_004)
      assert.strictEqual(none.newest, 12_003)
      yield* write(1)
      assert.deepStrictEqual(yield* bounds, { oldest: 12_004, newest: 12_004 })
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )

  it.effect("removes the oldest beyond the number that is kept", () =>
    Effect.gen(function* () {
      yield* write(25)
      yield* TestClock.adjust("61 seconds")
      const left = yield* eventually(bounds, ({ oldest }) => oldest > 1)
      assert.deepStrictEqual(left, { oldest: 16, newest: 25 })
    }).pipe(
      Effect.provide(freshStore({ retention: { maxEntries: 10 } }, kind)),
      Effect.provide(NodeServices.layer)
    )
  )

  it.effect("removes answers to idempotent requests with them", () =>
    Effect.gen(function* () {
      const store = yield* Store
      const repo = yield* IdempotencyRepo
      yield* store.write(repo.keepAll([{ key: "k", body_hash: "h", response: "{}", created_at: 0 }]))
      yield* TestClock.adjust("25 hours")
      yield* eventually(store.read(repo.find("k", 0)), Option.isNone)
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )
})
