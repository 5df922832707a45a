import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { Tickets } from "../../src/events/Tickets.ts"

const admin = { key_id: "k1", name: "ci", scope: "AppAdmin" } as const

describe("decisions, section 6: tickets", () => {
  it.effect("open one stream, for whom they were issued to", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const one = yield* tickets.issue(admin)
      const other = yield* tickets.issue({ ...admin, key_id: "k2" })
      assert.match(one.ticket, /^[A-Za-z0-9_-]{43}$/)
      assert.notStrictEqual(one.ticket, other.ticket)
      assert.strictEqual(one.expires_at, "1970-01-01T00:00:30.000Z")
      assert.deepStrictEqual(yield* tickets.redeem(one.ticket), admin)
      const error = yield* Effect.flip(tickets.redeem(one.ticket))
      assert.strictEqual(error._tag, "Unauthorized")
      assert.strictEqual((yield* tickets.redeem(other.ticket)).key_id, "k2")
    }).pipe(Effect.provide(Tickets.layer()))
  )

  it.effect("expire after 30 s", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const one = yield* tickets.issue(admin)
      const other = yield* tickets.issue(admin)
      yield* TestClock.adjust(29_999)
      yield* tickets.redeem(one.ticket)
      yield* TestClock.adjust(1)
      assert.strictEqual((yield* Effect.flip(tickets.redeem(other.ticket)))._tag, "Unauthorized")
    }).pipe(Effect.provide(Tickets.layer()))
  )

  it.effect("unknown and malformed ones are refused alike", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      for (const ticket of ["", "x", "a".repeat(100_000), "__proto__"]) {
        const error = yield* Effect.flip(tickets.redeem(ticket))
        assert.strictEqual(error.detail, "the ticket is unknown, was used or has expired")
      }
    }).pipe(Effect.provide(Tickets.layer()))
  )

  it.effect("are bounded in number: used and expired ones make room", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const one = yield* tickets.issue(admin)
      yield* tickets.issue(admin)
      assert.strictEqual((yield* Effect.flip(tickets.issue(admin)))._tag, "TooManyRequests")
      yield* tickets.redeem(one.ticket)
      yield* tickets.issue(admin)
      assert.strictEqual((yield* Effect.flip(tickets.issue(admin)))._tag, "TooManyRequests")
      yield* TestClock.adjust("30 seconds")
      yield* tickets.issue(admin)
    }).pipe(Effect.provide(Tickets.layer({ most: 2 })))
  )
})
