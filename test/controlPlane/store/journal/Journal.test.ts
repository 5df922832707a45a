import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Layer, Scope, Stream } from "effect"
import { SqlClient } from "effect/sql"
import * as fc from "fast-check"
import { ServerId } from "../../../../src/contract/domain/Id.ts"
import { isPublic, type JournalEntry, serverOf } from "../../../../src/contract/domain/Journal.ts"
import { Journal } from "../../../../src/controlPlane/store/journal/Journal.ts"
import { Store, Transaction } from "../../../../src/controlPlane/store/Store.ts"
import { append, databases, freshStore, newUrl, storeAt } from "../support/database.ts"

const entriesAfter = (cursor: number) =>
  Effect.flatMap(Journal, (journal) => Stream.runCollect(journal.after(cursor)))
const bounds = Effect.flatMap(Journal, (journal) => journal.bounds)

/** Collects every entry that followers receive. */
const follow = Effect.gen(function* () {
  const journal = yield* Journal
  const seen: Array<JournalEntry> = []
  yield* journal.follow("publish", (entries) => Effect.sync(() => seen.push(...entries)))
  return seen
})

type Outcome = "succeeds" | "fails" | "dies" | "breaks SQL" | "is interrupted"
interface Planned {
  readonly appends: number
  readonly outcome: Outcome
}

const planned: fc.Arbitrary<Planned> = fc.record({
  appends: fc.nat({ max: 4 }),
  outcome: fc.constantFrom<Outcome>("succeeds", "succeeds", "fails", "dies", "breaks SQL", "is interrupted")
})

const carryOut = Effect.fnUntraced(function* (name: string, plan: Planned) {
  const sql = yield* SqlClient.SqlClient
  const store = yield* Store
  const mutation = Effect.gen(function* () {
    yield* append(...Array.from({ length: plan.appends }, () => name))
    yield* Effect.yieldNow
    if (plan.outcome === "fails") return yield* Effect.fail("no")
    if (plan.outcome === "dies") return yield* Effect.die("oh")
    if (plan.outcome === "breaks SQL") yield* sql`SELEKT`
    if (plan.outcome === "is interrupted") return yield* Effect.interrupt
  })
  return yield* Effect.exit(store.write(mutation))
})

/** Carries out rounds of concurrent writes, and asserts what the journal has then, beyond what it had before. */
const oneTotalOrder = Effect.fnUntraced(function* (rounds: ReadonlyArray<ReadonlyArray<Planned>>) {
  const { newest: before } = yield* bounds
  const seen = yield* follow
  const succeeded = new Map<string, number>()
  for (const [round, plans] of rounds.entries()) {
    yield* Effect.forEach(
      plans,
      (plan, i) =>
        Effect.map(carryOut(`${round}-${i}`, plan), (exit) => {
          assert.strictEqual(Exit.isSuccess(exit), plan.outcome === "succeeds")
          if (Exit.isSuccess(exit)) succeeded.set(`${round}-${i}`, plan.appends)
        }),
      { concurrency: "unbounded", discard: true }
    )
  }
  const kept = yield* entriesAfter(before)
  assert.deepStrictEqual(
    kept.map((entry) => entry.cursor),
    kept.map((_, index) => before + index + 1)
  )
  assert.deepStrictEqual(seen, Array.from(kept))
  // Writes that were made in this order were committed in it, each with all that it appended.
  const expected = [...succeeded].flatMap(([name, appends]) => Array.from({ length: appends }, () => name))
  assert.deepStrictEqual<ReadonlyArray<string | undefined>>(
    kept.map((entry) => serverOf(entry.change)),
    expected
  )
  assert.strictEqual((yield* bounds).newest, before + kept.length)
})

describe.each(databases)("spec 5.2: one total order (%s)", (kind) => {
  it.effect(
    "cursors are gapless and in commit order; a failed mutation leaves no entry; followers receive the same",
    () =>
      Effect.gen(function* () {
        const context = yield* Effect.context<Journal | Store | SqlClient.SqlClient>()
        const property = fc.asyncProperty(
          fc.array(fc.array(planned, { maxLength: 8 }), { minLength: 1, maxLength: 5 }),
          (rounds) => Effect.runPromiseWith(context)(Effect.scoped(oneTotalOrder(rounds)))
        )
        yield* Effect.promise(() => fc.assert(property, { numRuns: 25 }))
        assert.strictEqual((yield* bounds).oldest, 1)
      }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )

  it.effect("every kind of change is read as it was written, with its blueprint", () =>
    Effect.gen(function* () {
      const store = yield* Store
      const seen = yield* follow
      yield* store.write(
        Effect.gen(function* () {
          const { append } = yield* Transaction
          const crash = { reason: "exit code 1", exit_code: 1, timestamp: "2026-01-02T03:04:05.678Z" }
          yield* append(
            { topic: "server:created", server_id: ServerId.make("a"), payload: null },
            { blueprint_id: "b1" }
          )
          yield* append(
            {
              topic: "server:install",
              server_id: ServerId.make("a"),
              payload: { phase: "ready", exit_code: 0 }
            },
            { blueprint_id: "b1" }
          )
          yield* append(
            { topic: "server:start-pending", server_id: ServerId.make("a"), payload: false },
            { blueprint_id: "b1" }
          )
          yield* append(
            { topic: "status", server_id: ServerId.make("a"), payload: "offline" },
            { blueprint_id: "b1", labels: { team: "a" } }
          )
          yield* append(
            { topic: "crash", server_id: ServerId.make("a"), payload: crash },
            { blueprint_id: "b1" }
          )
          yield* append(
            { topic: "deleted", server_id: ServerId.make("a"), payload: null },
            { blueprint_id: "b2" }
          )
        })
      )
      const kept = yield* entriesAfter(0)
      assert.deepStrictEqual(Array.from(kept), seen)
      assert.deepStrictEqual(
        kept.map((entry) => isPublic(entry.change)),
        [false, false, false, true, true, true]
      )
      assert.strictEqual(kept[5]?.blueprint_id, "b2")
      assert.deepStrictEqual(kept[3]?.labels, { team: "a" })
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )

  it.effect("all entries after a cursor can be read, over any number of pages", () =>
    Effect.gen(function* () {
      const store = yield* Store
      yield* store.write(append(...Array.from({ length: 2_500 }, (_, i) => `s${i}`)))
      assert.strictEqual((yield* entriesAfter(0)).length, 2_500)
      assert.deepStrictEqual(
        (yield* entriesAfter(2_498)).map((entry) => entry.cursor),
        [2_499, 2_500]
      )
      assert.deepStrictEqual(yield* entriesAfter(2_500), [])
      assert.deepStrictEqual(yield* entriesAfter(9_999), [])
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )

  it.effect("a follower is not called after its scope has closed", () =>
    Effect.gen(function* () {
      const store = yield* Store
      const scope = yield* Scope.make()
      const gone = yield* Scope.provide(follow, scope)
      const staying = yield* follow
      yield* store.write(append("a"))
      yield* Scope.close(scope, Exit.void)
      yield* store.write(append("b"))
      assert.strictEqual(gone.length, 1)
      assert.strictEqual(staying.length, 2)
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )

  it.effect("cursors continue after a restart", () =>
    Effect.gen(function* () {
      const url = yield* newUrl(kind)
      const run = Effect.gen(function* () {
        assert.deepStrictEqual(
          yield* Effect.flatMap(Store, (store) => store.write(append("a", "b"))),
          undefined
        )
        return yield* bounds
      })
      assert.deepStrictEqual(yield* Effect.provide(run, storeAt(url)), { oldest: 1, newest: 2 })
      assert.deepStrictEqual(yield* Effect.provide(run, storeAt(url)), { oldest: 1, newest: 4 })
    }).pipe(Effect.provide(NodeServices.layer))
  )

  it.effect("an empty journal has no newest entry", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* bounds, { oldest: 1, newest: 0 })
      assert.deepStrictEqual(yield* entriesAfter(0), [])
    }).pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))
  )

  it.effect("entries of another process reach the followers in order, before the process's own", () =>
    Effect.gen(function* () {
      const url = yield* newUrl(kind)
      const here = yield* Layer.build(storeAt(url))
      const elsewhere = yield* Layer.build(storeAt(url))
      const seen = yield* Effect.provide(follow, here)
      const write = (name: string) => Effect.flatMap(Store, (store) => store.write(append(name)))
      yield* Effect.provide(write("here"), here)
      yield* Effect.provide(write("elsewhere"), elsewhere)
      yield* Effect.provide(write("here again"), here)
      yield* Effect.provide(write("elsewhere again"), elsewhere)
      yield* Effect.provide(
        Effect.flatMap(Journal, (followers) => followers.catchUp),
        here
      )
      assert.deepStrictEqual(
        seen.map((entry) => [entry.cursor, serverOf(entry.change)]),
        [
          [1, ServerId.make("here")],
          [2, ServerId.make("elsewhere")],
          [3, ServerId.make("here again")],
          [4, ServerId.make("elsewhere again")]
        ]
      )
    }).pipe(Effect.provide(NodeServices.layer))
  )
})
