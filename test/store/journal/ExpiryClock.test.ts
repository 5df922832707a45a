import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect } from "effect"
import * as fc from "fast-check"
import { Journal } from "../../../src/store/journal/Journal.ts"
import { TrustedTime } from "../../../src/store/journal/trustedTime.ts"
import { TicketRepo } from "../../../src/store/repos/TicketRepo.ts"
import { Store } from "../../../src/store/Store.ts"
import { append, databases, newUrl, storeAt } from "../support/database.ts"

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const holder = { key_id: "key_1", name: "x", scope: "AppAdmin" } as const

describe("ExpiryClock: the wall clock jumps by more than an hour", () => {
  it("a jump in either direction is accepted after ten minutes", () => {
    for (const jump of [2 * HOUR, -2 * HOUR]) {
      const time = new TrustedTime(1e12, 0)
      assert.deepStrictEqual(time.look(1e12 + 1000, 1000), { millis: 1e12 + 1000, ahead: 0 })
      assert.deepStrictEqual(time.look(1e12 + 2000 + jump, 2000), {
        millis: 1e12 + 2000,
        ahead: jump,
        news: "jumped"
      })
      const held = time.look(1e12 + 10 * MINUTE + jump, 10 * MINUTE)
      assert.deepStrictEqual(held, { millis: 1e12 + 10 * MINUTE, ahead: jump })
      const accepted = time.look(1e12 + 11 * MINUTE + jump, 11 * MINUTE)
      assert.deepStrictEqual(accepted, { millis: 1e12 + 11 * MINUTE + jump, ahead: 0, news: "accepted" })
    }
  })

  it("a jump that is corrected in time changes nothing, and another jump starts the ten minutes again", () => {
    const time = new TrustedTime(0, 0)
    assert.strictEqual(time.look(5 * HOUR, 0).news, "jumped")
    assert.strictEqual(time.look(9 * HOUR + 9 * MINUTE, 9 * MINUTE).news, "jumped")
    assert.strictEqual(time.look(9 * HOUR + 12 * MINUTE, 12 * MINUTE).millis, 12 * MINUTE)
    const right = time.look(13 * MINUTE, 13 * MINUTE)
    assert.deepStrictEqual(right, { millis: 13 * MINUTE, ahead: 0, news: "returned" })
  })

  it("for any jumps of less than ten minutes, the time follows the monotonic clock", () => {
    const jumps = fc.array(fc.integer({ min: -1e11, max: 1e11 }), { minLength: 1, maxLength: 50 })
    fc.assert(
      fc.property(jumps, (offsets) => {
        const time = new TrustedTime(1e12, 0)
        const step = (10 * MINUTE - 1) / offsets.length
        offsets.forEach((offset, index) => {
          const elapsed = Math.floor(index * step)
          const { millis } = time.look(1e12 + elapsed + offset, elapsed)
          // Each correction of up to an hour is accepted at once.
          assert.isAtMost(Math.abs(millis - 1e12 - elapsed), HOUR * (index + 1))
        })
      })
    )
  })
})

/** A wall clock that can be set while its timers run on. */
const settable = Effect.map(Clock.Clock, (live) => {
  let offset = 0
  const clock: Clock.Clock = {
    currentTimeMillisUnsafe: () => live.currentTimeMillisUnsafe() + offset,
    currentTimeMillis: Effect.map(live.currentTimeMillis, (now) => now + offset),
    currentTimeNanosUnsafe: () => live.currentTimeNanosUnsafe() + BigInt(offset) * 1_000_000n,
    currentTimeNanos: Effect.map(live.currentTimeNanos, (now) => now + BigInt(offset) * 1_000_000n),
    monotonicTimeNanosUnsafe: () => live.monotonicTimeNanosUnsafe(),
    monotonicTimeNanos: live.monotonicTimeNanos,
    sleep: (duration) => live.sleep(duration)
  }
  return {
    clock,
    set: (millis: number) =>
      Effect.sync(() => {
        offset = millis
      })
  }
})

const retention = { interval: "20 millis" } as const

describe.each(databases)("ExpiryClock: a jump prunes and expires nothing (%s)", (kind) => {
  it.live("the journal and tickets survive a jump, also after a start with the wrong clock", () =>
    Effect.gen(function* () {
      const { clock, set } = yield* settable
      const url = yield* newUrl(kind)
      const service = <A, E>(use: Effect.Effect<A, E, Journal | Store | TicketRepo>) =>
        Effect.scoped(use.pipe(Effect.provide(storeAt(url, { isService: true, retention })))).pipe(
          Effect.provideService(Clock.Clock, clock)
        )
      /** Runs as many rounds of the retention as pruning would take. */
      const rounds = Effect.gen(function* () {
        const store = yield* Store
        yield* store.write(append("marker"))
        yield* Effect.sleep("300 millis")
        return (yield* (yield* Journal).bounds).oldest
      })
      const ticket = (hash: string) =>
        Effect.gen(function* () {
          const store = yield* Store
          const tickets = yield* TicketRepo
          yield* store.write(tickets.insert(hash, holder, { lifetime: 30_000, most: 10, mostOfKey: 10 }))
        })
      yield* service(
        Effect.gen(function* () {
          const store = yield* Store
          const tickets = yield* TicketRepo
          yield* store.write(append("first"))
          yield* ticket("one")
          yield* set(48 * HOUR)
          assert.strictEqual(yield* rounds, 1)
          assert.deepStrictEqual(yield* store.write(tickets.find("one")), holder)
        })
      )
      yield* set(96 * HOUR)
      assert.strictEqual(yield* service(rounds), 1)
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )
})
