import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Context, Duration, Effect, Exit, Layer, Metric, Redacted, Scope } from "effect"
import { TestClock } from "effect/testing"
import { Tickets, type WantedStream } from "../../../src/controlPlane/events/Tickets.ts"
import { CurrentPrincipal } from "../../../src/controlPlane/http/Principal.ts"
import { ApiKeys } from "../../../src/controlPlane/keys/ApiKeys.ts"
import { storeMutations } from "../../../src/shared/observability/metrics.ts"
import { eventually } from "../../support/eventually.ts"
import { newPostgresDatabase } from "../../support/postgresDatabase.ts"
import { freshStore, query, storeAt } from "../store/support/database.ts"

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

const events = { content: "events", start: 5, cursor: undefined }

/** Opens the stream of a ticket until the scope closes; `replaced` says whether a reconnect has ended it. */
const open = Effect.fnUntraced(function* (
  tickets: Tickets["Service"],
  ticket: string,
  wanted: WantedStream = events
) {
  const principal = yield* tickets.verify(ticket)
  const replaced = yield* Effect.provideService(tickets.open(wanted), CurrentPrincipal, principal)
  let isReplaced = false
  const mark = Effect.sync(() => {
    isReplaced = true
  })
  yield* Effect.forkScoped(Effect.andThen(replaced, mark), { startImmediately: true })
  return Effect.as(Effect.yieldNow, () => isReplaced).pipe(Effect.map((read) => read()))
})

/** Opens the stream of a ticket and closes it. */
const opened = (tickets: Tickets["Service"], ticket: string, wanted?: WantedStream) =>
  Effect.scoped(Effect.asVoid(open(tickets, ticket, wanted)))

const refused = <A, E extends { readonly _tag: string }, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.match(effect, { onSuccess: () => false, onFailure: ({ _tag }) => _tag === "Unauthorized" })

const countWrites = Effect.map(Metric.value(storeMutations), ({ count }) => Number(count))

describe("spec 5.7: tickets", () => {
  it.effect("a ticket opens a stream for the key that requested it; only its hash is stored", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const one = yield* tickets.issue(admin)
      const other = yield* tickets.issue({ ...admin, key_id: "k2" })
      assert.match(one.ticket, /^[A-Za-z0-9_-]{43}$/)
      assert.notStrictEqual(one.ticket, other.ticket)
      assert.strictEqual(one.expires_at, "1970-01-01T00:00:30.000Z")
      yield* opened(tickets, one.ticket)
      assert.notInclude(JSON.stringify(yield* query("SELECT * FROM tickets")), one.ticket)
      const { ticket, ...holder } = yield* tickets.verify(one.ticket)
      assert.deepStrictEqual(holder, admin)
      assert.match(String(ticket), /^[0-9a-f]{64}$/)
      assert.strictEqual((yield* tickets.verify(other.ticket)).key_id, "k2")
    }).pipe(onStore())
  )

  it.effect("an unused ticket expires after 30 s", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const one = yield* tickets.issue(admin)
      const other = yield* tickets.issue(admin)
      yield* TestClock.adjust(29_999)
      yield* opened(tickets, one.ticket)
      const late = yield* tickets.verify(other.ticket)
      yield* TestClock.adjust(1)
      assert.isTrue(yield* refused(tickets.verify(other.ticket)))
      // Also if it expires between the two steps.
      const opening = Effect.provideService(tickets.open(events), CurrentPrincipal, late)
      assert.isTrue(yield* refused(Effect.scoped(opening)))
    }).pipe(onStore())
  )

  it.effect("unknown and malformed tickets are refused alike", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      for (const ticket of ["", "x", "a".repeat(43), "a".repeat(100_000), "__proto__"]) {
        const error = yield* Effect.flip(tickets.verify(ticket))
        assert.strictEqual(error.message, "the ticket is unknown or has expired")
      }
    }).pipe(onStore())
  )

  it.effect("verifying a ticket costs no write, however often a client sends it", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const { ticket } = yield* tickets.issue(admin)
      const before = yield* countWrites
      yield* Effect.forEach(
        Array.from({ length: 200 }, (_, at) => ({
          ticket: String(at).padStart(43, "a"),
          limited: at % 2 === 0
        })),
        ({ limited, ticket: unknown }) => Effect.flip(tickets.verify(unknown, { limited })),
        { concurrency: "unbounded" }
      )
      assert.strictEqual((yield* tickets.verify(ticket, { limited: true })).key_id, "k1")
      assert.strictEqual(yield* countWrites, before)
    }).pipe(onStore())
  )

  it.effect("a ticket of a revoked or expired key opens no stream, neither the first time nor again", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const keys = yield* ApiKeys
      const holderOf = Effect.fnUntraced(function* (expires?: Duration.Duration) {
        const { record } = yield* keys.create({
          name: "ci",
          scope: "AppAdmin",
          ...(expires === undefined ? {} : { expires })
        })
        return { key_id: record.id, name: "ci", scope: "AppAdmin" } as const
      })
      const [revoked, expiring] = [yield* holderOf(), yield* holderOf(Duration.seconds(20))]
      const all = yield* Effect.forEach([revoked, revoked, expiring, expiring], tickets.issue)
      for (const at of [1, 3]) yield* opened(tickets, all[at]?.ticket ?? "")
      yield* keys.revoke(revoked.key_id)
      yield* TestClock.adjust("20 seconds")
      for (const { ticket } of all) assert.isTrue(yield* refused(tickets.verify(ticket)))
    }).pipe(onStore())
  )

  it.effect("the number of tickets without an open stream is bounded; expired tickets are removed", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const one = yield* tickets.issue(admin)
      yield* tickets.issue(admin)
      const isFull = Effect.map(Effect.flip(tickets.issue(admin)), ({ _tag }) => _tag === "LimitReached")
      assert.isTrue(yield* isFull)
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* open(tickets, one.ticket)
          yield* tickets.issue(admin)
          assert.isTrue(yield* isFull)
        })
      )
      // The stream has broken: its ticket waits for the reconnect.
      assert.isTrue(yield* isFull)
      yield* TestClock.adjust("60 seconds")
      yield* tickets.issue(admin)
      assert.deepStrictEqual(yield* query("SELECT COUNT(*) AS count FROM tickets"), [{ count: 1 }])
    }).pipe(onStore({ most: 2 }))
  )
})

describe("spec 5.5: a ticket is valid for reconnects of its own stream", () => {
  it.effect("a ticket opens its stream again until 60 s after the stream broke, each time", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const { ticket } = yield* tickets.issue(admin)
      for (let round = 0; round < 3; round++) {
        yield* Effect.scoped(
          Effect.gen(function* () {
            yield* open(tickets, ticket)
            yield* TestClock.adjust("5 minutes")
          })
        )
        yield* TestClock.adjust(59_999)
      }
      yield* opened(tickets, ticket)
      yield* TestClock.adjust(60_000)
      assert.isTrue(yield* refused(tickets.verify(ticket)))
    }).pipe(onStore())
  )

  it.effect("the filter must be the same, and the cursor at or after the start of the first stream", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const { ticket } = yield* tickets.issue(admin)
      yield* opened(tickets, ticket, events)
      for (const wanted of [
        { ...events, content: "other" },
        { ...events, cursor: 4, start: 4 },
        { ...events, cursor: 0, start: 0 }
      ]) {
        assert.isTrue(yield* refused(opened(tickets, ticket, wanted)))
      }
      yield* opened(tickets, ticket, { ...events, cursor: 90, start: 90 })
      // The start stays that of the first stream; a replica that is behind has a lower position.
      yield* opened(tickets, ticket, { ...events, cursor: 5, start: 5 })
      yield* opened(tickets, ticket, { ...events, start: 3 })
    }).pipe(onStore())
  )

  it.effect("a refused request leaves the ticket as it was", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const { ticket } = yield* tickets.issue(admin)
      const isReplaced = yield* open(tickets, ticket)
      assert.isTrue(yield* refused(opened(tickets, ticket, { ...events, content: "other" })))
      assert.isFalse(yield* isReplaced)
    }).pipe(Effect.scoped, onStore())
  )

  it.effect("a reconnect ends the earlier connection, whose end does not end the new one", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const { ticket } = yield* tickets.issue(admin)
      const first = yield* Scope.make()
      const firstReplaced = yield* Scope.provide(first)(open(tickets, ticket))
      assert.isFalse(yield* firstReplaced)
      const secondReplaced = yield* open(tickets, ticket)
      assert.isTrue(yield* firstReplaced)
      yield* Scope.close(first, Exit.void)
      // Longer than a ticket lives without an open stream.
      yield* TestClock.adjust("5 minutes")
      yield* tickets.verify(ticket)
      assert.isFalse(yield* secondReplaced)
    }).pipe(Effect.scoped, onStore())
  )

  it.effect("an open stream costs one write in 10 s for all tickets, and none without a ticket", () =>
    Effect.gen(function* () {
      const tickets = yield* Tickets
      const before = yield* countWrites
      const without = Effect.provideService(tickets.open(events), CurrentPrincipal, admin)
      yield* Effect.scoped(without)
      yield* TestClock.adjust("20 seconds")
      assert.strictEqual(yield* countWrites, before)
      for (const { ticket } of yield* Effect.forEach([1, 2, 3], () => tickets.issue(admin))) {
        yield* open(tickets, ticket)
      }
      const opened = yield* countWrites
      assert.strictEqual(opened, before + 6)
      yield* TestClock.adjust("20 seconds")
      assert.strictEqual(yield* countWrites, opened + 2)
    }).pipe(Effect.scoped, onStore())
  )

  it.effect("the tickets of the outside key end with the key", () =>
    Effect.gen(function* () {
      const repos = Layer.provideMerge(ApiKeys.layer(), freshStore({}, "sqlite"))
      const withKey = (key: string) =>
        Effect.map(Layer.build(Layer.fresh(Tickets.layer({ adminKey: Redacted.make(key) }))), (context) =>
          Context.get(context, Tickets)
        )
      yield* Effect.gen(function* () {
        const [before, after] = [yield* withKey("first"), yield* withKey("second")]
        const { ticket } = yield* before.issue({ ...admin, key_id: "env" })
        yield* opened(before, ticket)
        yield* opened(before, ticket)
        assert.isTrue(yield* refused(opened(after, ticket)))
        const stored = yield* before.issue(admin)
        yield* opened(before, stored.ticket)
        yield* opened(after, stored.ticket)
      }).pipe(Effect.provide(repos))
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )
})

/** In ms; a machine that does other work lets no test wait for so long between two steps. */
const LIFETIME = 5_000

describe("design: replicas are equal", () => {
  const replicas = Effect.gen(function* () {
    const url = yield* newPostgresDatabase()
    const replica = Effect.map(
      Layer.build(
        Layer.fresh(
          Tickets.layer({ lifetime: LIFETIME, reconnect: LIFETIME, renewal: "200 millis" }).pipe(
            Layer.provide(storeAt(url))
          )
        )
      ),
      (context) => Context.get(context, Tickets)
    )
    return { url, replica }
  })
  const two = Effect.flatMap(replicas, ({ replica }) => Effect.all([replica, replica]))

  it.live(
    "a ticket of one replica opens a stream of another; of several at once, one stays open",
    () =>
      Effect.gen(function* () {
        const [one, other] = yield* two
        for (let round = 0; round < 20; round++) {
          const { ticket } = yield* one.issue(admin)
          const isReplaced = yield* Effect.forEach(
            [one, other, one, other],
            (replica) => open(replica, ticket),
            { concurrency: "unbounded" }
          )
          yield* eventually(Effect.all(isReplaced), (all) => all.filter((replaced) => !replaced).length === 1)
        }
      }).pipe(Effect.scoped),
    180_000
  )

  it.live("if a replica is killed, the tickets of its streams are valid at another one, then expire", () =>
    Effect.gen(function* () {
      const { replica } = yield* replicas
      const other = yield* replica
      const killed = yield* Scope.make()
      const one = yield* Scope.provide(killed)(replica)
      const [back, gone] = [yield* one.issue(admin), yield* one.issue(admin)]
      for (const { ticket } of [back, gone]) yield* open(one, ticket)
      // Nothing renews the leases any more, and no stream was closed.
      yield* Scope.close(killed, Exit.void)
      const isReplaced = yield* open(other, back.ticket)
      yield* eventually(refused(other.verify(gone.ticket)))
      yield* other.verify(back.ticket)
      assert.isFalse(yield* isReplaced)
    }).pipe(Effect.scoped)
  )

  it.live("a ticket expires by the clock of the database, not of a replica", () =>
    Effect.gen(function* () {
      const [one, other] = yield* two
      const { ticket } = yield* one.issue(admin)
      const late = yield* one.issue(admin)
      // The clock of this replica is years behind.
      yield* opened(other, ticket).pipe(Effect.provide(TestClock.layer()))
      const expired = Effect.map(one.issue(admin), ({ expires_at }) => expires_at > later(late.expires_at))
      yield* eventually(expired)
      assert.isTrue(yield* refused(other.verify(late.ticket)))
    }).pipe(Effect.scoped)
  )
})

/** The clock of the database has passed `at` once it issues tickets that expire later than their lifetime after it. */
const later = (at: string) => new Date(Date.parse(at) + LIFETIME).toISOString()
