import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { Journal } from "../../../src/controlPlane/store/journal/Journal.ts"
import { DeletedServerRepo } from "../../../src/controlPlane/store/repos/DeletedServerRepo.ts"
import { IdempotencyRepo } from "../../../src/controlPlane/store/repos/IdempotencyRepo.ts"
import { ServerRepo } from "../../../src/controlPlane/store/repos/ServerRepo.ts"
import { Store } from "../../../src/controlPlane/store/Store.ts"
import { eventually } from "../../support/eventually.ts"
import { server } from "../../support/samples.ts"
import { append, databases, freshStore, newUrl, query, storeAt } from "./support/database.ts"

const bounds = Effect.flatMap(Journal, (journal) => journal.bounds)
const write = (count: number) =>
  Effect.flatMap(Store, (store) => store.write(append(...Array.from({ length: count }, (_, i) => `s${i}`))))

/** Runs the retention, which prunes once a minute in its own fiber, until its work is done. */
const afterMinutes = <A, E, R>(read: Effect.Effect<A, E, R>, isDone: (value: A) => boolean) =>
  eventually(
    Effect.tap(read, (value) => (isDone(value) ? Effect.void : TestClock.adjust("1 minute"))),
    isDone
  )

describe.each(databases)("spec 5.5: the journal keeps 24 h or 1,000,000 events (%s)", (kind) => {
  it.effect("older entries are removed; the other entries keep their cursors", () =>
    Effect.gen(function* () {
      const url = yield* newUrl(kind)
      // Closed while hours pass: its timers would run for each second of them.
      const open = Effect.provide(Layer.fresh(storeAt(url)))
      yield* write(12_000).pipe(open)
      yield* TestClock.adjust("23 hours")
      yield* Effect.gen(function* () {
        yield* write(3)
        assert.deepStrictEqual(yield* bounds, { oldest: 1, newest: 12_003 })
      }).pipe(open)
      yield* TestClock.adjust("1 hour")
      yield* Effect.gen(function* () {
        const left = yield* afterMinutes(bounds, ({ oldest }) => oldest === 12_001)
        assert.strictEqual(left.newest, 12_003)
      }).pipe(open)
      yield* TestClock.adjust("24 hours")
      yield* Effect.gen(function* () {
        const none = yield* afterMinutes(bounds, ({ oldest }) => oldest === 12_004)
        assert.strictEqual(none.newest, 12_003)
        yield* write(1)
        assert.deepStrictEqual(yield* bounds, { oldest: 12_004, newest: 12_004 })
      }).pipe(open)
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.effect("the oldest entries beyond the maximum number are removed", () =>
    Effect.gen(function* () {
      yield* write(25)
      yield* TestClock.adjust("61 seconds")
      const left = yield* afterMinutes(bounds, ({ oldest }) => oldest > 1)
      assert.deepStrictEqual(left, { oldest: 16, newest: 25 })
    }).pipe(
      Effect.provide(freshStore({ retention: { maxEntries: 10 } }, kind)),
      Effect.provide(NodeServices.layer)
    )
  )

  it.effect("expired responses to idempotent requests are removed as well", () =>
    Effect.gen(function* () {
      yield* TestClock.adjust("25 hours")
      yield* Effect.gen(function* () {
        const store = yield* Store
        const repo = yield* IdempotencyRepo
        yield* store.write(repo.keepAll([{ key: "k", body_hash: "h", response: "{}", created_at: 0 }]))
        yield* afterMinutes(store.read(repo.find("k", 0)), (found) => found === undefined)
      }).pipe(Effect.provide(freshStore({}, kind)))
    }).pipe(Effect.provide(NodeServices.layer))
  )
})

describe.each(databases)("store: definitions (%s)", (kind) => {
  it.effect("a definition is removed once no server has it", () =>
    Effect.gen(function* () {
      const store = yield* Store
      const repo = yield* ServerRepo
      const [one, other, third] = [1, 2, 3].map((ports) => {
        const made = server(`srv_${ports}`, [ports])
        return { ...made, definition: { ...made.definition, ports } }
      })
      assert(one !== undefined && other !== undefined && third !== undefined)
      yield* store.write(repo.insertAll([one, other]))
      yield* store.write(
        Effect.andThen(repo.redefine(one, { ...one, definition: third.definition }), repo.remove(other.id))
      )
      const count = Effect.map(query("SELECT hash FROM definitions"), (rows) => rows.length)
      assert.strictEqual(yield* count, 3)
      assert.strictEqual(yield* afterMinutes(count, (left) => left < 3), 1)
      assert.deepStrictEqual(
        (yield* store.read(repo.all)).map(({ definition }) => definition),
        [third.definition]
      )
      // A definition that was removed is stored again with its next server.
      yield* store.write(repo.insertAll([other]))
      assert.lengthOf(yield* store.read(repo.all), 2)
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )
})

describe.each(databases)("docs/api.md: why a server is gone (%s)", (kind) => {
  it.effect("the end of a server is kept for 30 days, and survives a restart", () =>
    Effect.gen(function* () {
      const url = yield* newUrl(kind)
      // Closed while days pass, as above.
      const open = Effect.provide(Layer.fresh(storeAt(url)))
      const add = Effect.fnUntraced(function* (id: string) {
        const store = yield* Store
        const repo = yield* DeletedServerRepo
        const deleted_at = yield* Clock.currentTimeMillis
        yield* store.write(repo.add(server(id, [1]), { deleted_at, reason: "it had expired" }))
      })
      const left = Effect.map(query("SELECT id FROM deleted_servers ORDER BY id"), (rows) =>
        rows.map(({ id }) => id)
      )
      yield* add("old").pipe(open)
      yield* TestClock.adjust("29 days")
      yield* add("young").pipe(open)
      yield* TestClock.adjust("23 hours")
      yield* Effect.gen(function* () {
        yield* TestClock.adjust("61 seconds")
        assert.deepStrictEqual(yield* left, ["old", "young"])
      }).pipe(open)
      yield* TestClock.adjust("1 hour")
      const after = afterMinutes(left, (ids) => ids.length === 1)
      assert.deepStrictEqual(yield* after.pipe(open), ["young"])
    }).pipe(Effect.provide(NodeServices.layer))
  )
})
