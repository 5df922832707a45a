import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Metric } from "effect"
import { TestClock } from "effect/testing"
import { Tickets } from "../../src/events/Tickets.ts"
import { ApiKeys } from "../../src/keys/ApiKeys.ts"
import { storeMutations } from "../../src/store/write/groupCommit.ts"
import { freshStore, query, storeAt } from "../store/support/database.ts"
import { eventually } from "../support/eventually.ts"
import { newPostgresDatabase } from "../support/postgresDatabase.ts"

const admin = { key_id: "k1", name: "ci", scope: "AppAdmin" } as const

// On SQLite the clock of the service is that of the database.
const onStore = (options: Parameters<typeof Tickets.layer>[0] = {}) =>
  Effect.provide(
    Tickets.layer(options).pipe(
      Layer.provideMerge(ApiKeys.layer()),
      Layer.provideMerge(freshStore({}, "sqlite")),
      Layer.provide(NodeServices.layer)
    )
  )

describe("decisions 6: tickets", () => {
  it.effect("a ticket opens one stream for the key that requested it; only its hash is stored", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const one = yield* tickets.issue(admin)
      const other = yield* tickets.issue({ ...admin, key_id: "k2" })
      assert.match(one.ticket, /^[A-Za-z0-9_-]{43}$/)
      assert.notStrictEqual(one.ticket, other.ticket)
      assert.strictEqual(one.expires_at, "1970-01-01T00:00:30.000Z")
      assert.notInclude(JSON.stringify(yield* query("SELECT * FROM tickets")), one.ticket)
      assert.deepStrictEqual(yield* tickets.redeem(one.ticket), admin)
      const error = yield* Effect.flip(tickets.redeem(one.ticket))
      assert.strictEqual(error._tag, "Unauthorized")
      assert.strictEqual((yield* tickets.redeem(other.ticket)).key_id, "k2")
    }).pipe(onStore())
  )

  it.effect("a ticket expires after 30 s", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const one = yield* tickets.issue(admin)
      const other = yield* tickets.issue(admin)
      yield* TestClock.adjust(29_999)
      yield* tickets.redeem(one.ticket)
      yield* TestClock.adjust(1)
      assert.strictEqual((yield* Effect.flip(tickets.redeem(other.ticket)))._tag, "Unauthorized")
    }).pipe(onStore())
  )

  it.effect("unknown and malformed tickets are refused alike", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      for (const ticket of ["", "x", "a".repeat(43), "a".repeat(100_000), "__proto__"]) {
        const error = yield* Effect.flip(tickets.redeem(ticket))
        assert.strictEqual(error.message, "the ticket is unknown, was used or has expired")
      }
    }).pipe(onStore())
  )

  it.effect("a ticket that was never issued costs no write, however often a client sends it", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const { ticket } = yield* tickets.issue(admin)
      const writes = Effect.map(Metric.value(storeMutations), ({ count }) => Number(count))
      const before = yield* writes
      yield* Effect.forEach(
        Array.from({ length: 200 }, (_, at) => ({
          ticket: String(at).padStart(43, "a"),
          limited: at % 2 === 0
        })),
        ({ limited, ticket: unknown }) => Effect.flip(tickets.redeem(unknown, { limited })),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(yield* writes, before)
      assert.deepStrictEqual(yield* tickets.redeem(ticket, { limited: true }), admin)
      assert.strictEqual(yield* writes, before + 1)
      // The ticket is used, so nothing is left for a write to redeem.
      yield* Effect.flip(tickets.redeem(ticket))
      assert.strictEqual(yield* writes, before + 1)
    }).pipe(onStore())
  )

  it.effect("a ticket of a key that has been revoked opens no stream", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const keys = yield* ApiKeys
      const { record } = yield* keys.create({ name: "ci", scope: "AppAdmin" })
      const holder = { key_id: record.id, name: "ci", scope: "AppAdmin" } as const
      const [one, other] = [yield* tickets.issue(holder), yield* tickets.issue(holder)]
      assert.deepStrictEqual(yield* tickets.redeem(one.ticket), holder)
      yield* keys.revoke(record.id)
      assert.strictEqual((yield* Effect.flip(tickets.redeem(other.ticket)))._tag, "Unauthorized")
    }).pipe(onStore())
  )

  it.effect("the number of tickets is bounded; used and expired tickets are removed", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const one = yield* tickets.issue(admin)
      yield* tickets.issue(admin)
      assert.strictEqual((yield* Effect.flip(tickets.issue(admin)))._tag, "LimitReached")
      yield* tickets.redeem(one.ticket)
      yield* tickets.issue(admin)
      assert.strictEqual((yield* Effect.flip(tickets.issue(admin)))._tag, "LimitReached")
      yield* TestClock.adjust("30 seconds")
      yield* tickets.issue(admin)
      assert.deepStrictEqual(yield* query("SELECT COUNT(*) AS count FROM tickets"), [{ count: 1 }])
    }).pipe(onStore({ most: 2 }))
  )
})

describe("design: replicas are equal", () => {
  const replicas = Effect.gen(function* () {
    const url = yield* newPostgresDatabase()
    const replica = Effect.map(
      Layer.build(Layer.fresh(Tickets.layer({ lifetime: "2 seconds" }).pipe(Layer.provide(storeAt(url))))),
      (context) => Context.get(context, Tickets)
    )
    return [yield* replica, yield* replica] as const
  })

  it.live("a ticket of one replica opens a stream of another; if both redeem it at once, one succeeds", () =>
    Effect.gen(function* () {
      const [one, other] = yield* replicas
      for (let round = 0; round < 20; round++) {
        const { ticket } = yield* one.issue(admin)
        const taken = yield* Effect.forEach(
          [one, other, one, other],
          (replica) =>
            Effect.match(replica.redeem(ticket), {
              onSuccess: (principal) => principal.key_id,
              onFailure: (error) => error._tag
            }),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(taken.toSorted(), ["Unauthorized", "Unauthorized", "Unauthorized", "k1"])
      }
    }).pipe(Effect.scoped)
  )

  it.live("a ticket expires by the clock of the database, not of a replica", () =>
    Effect.gen(function* () {
      const [one, other] = yield* replicas
      const { ticket } = yield* one.issue(admin)
      const late = yield* one.issue(admin)
      // This replica's own clock is years behind, and is not used.
      yield* other.redeem(ticket).pipe(Effect.provide(TestClock.layer()))
      const expired = Effect.map(one.issue(admin), ({ expires_at }) => expires_at > later(late.expires_at))
      yield* eventually(expired)
      assert.strictEqual((yield* Effect.flip(other.redeem(late.ticket)))._tag, "Unauthorized")
    }).pipe(Effect.scoped)
  )
})

/** The clock of the database has passed `at` once it issues tickets that expire later than their lifetime after it. */
const later = (at: string) => new Date(Date.parse(at) + 2_000).toISOString()
