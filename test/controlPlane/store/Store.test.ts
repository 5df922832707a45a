import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer, Metric, Scope } from "effect"
import { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { Journal } from "../../../src/controlPlane/store/journal/Journal.ts"
import { layerSqlite } from "../../../src/controlPlane/store/layers/layerDatabase.ts"
import { Store } from "../../../src/controlPlane/store/Store.ts"
import { openDatabase } from "../../../src/controlPlane/store/sqlite/database.ts"
import { storeCommits } from "../../../src/shared/observability/metrics.ts"
import {
  append,
  type DatabaseKind,
  databases,
  freshStore,
  newDatabase,
  newUrl,
  query,
  storeAt
} from "./support/database.ts"

const onFresh =
  (kind: DatabaseKind) =>
  <A, E>(test: Effect.Effect<A, E, Store | Journal | SqlClient.SqlClient | Scope.Scope>) =>
    test.pipe(Effect.provide(freshStore({}, kind)), Effect.provide(NodeServices.layer))

const table = (sql: SqlClient.SqlClient) =>
  sql`CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)`
const notes = Effect.map(query("SELECT text FROM notes ORDER BY id"), (rows) => rows.map((row) => row.text))
const servers = Effect.map(query("SELECT server_id FROM journal ORDER BY cursor"), (rows) =>
  rows.map((row) => row.server_id)
)
const linkTo = (sql: SqlClient.SqlClient, id: number) => sql`INSERT INTO links (id) VALUES (${id})`
const commits = Effect.map(Metric.value(storeCommits), (state) => Number(state.count))

/** Makes the mutation that adds a row of {@link table} and a journal entry. */
const noteIn = (sql: SqlClient.SqlClient) => (id: number, text: string) =>
  Effect.andThen(append(text), sql`INSERT INTO notes (id, text) VALUES (${id}, ${text})`)

describe.each(databases)("design: writes are grouped (%s)", (kind) => {
  const onFreshStore = onFresh(kind)

  it.effect("after a write returns, its changes can be read and its followers have received them", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const journal = yield* Journal
        const seen: Array<string> = []
        yield* journal.follow("publish", (entries) =>
          Effect.sync(() => entries.map((e) => seen.push(`first ${e.cursor}`)))
        )
        yield* journal.follow("publish", (entries) =>
          Effect.sync(() => entries.map((e) => seen.push(`second ${e.cursor}`)))
        )
        const answer = yield* store.write(Effect.as(append("a", "b"), "answer"))
        assert.strictEqual(answer, "answer")
        assert.deepStrictEqual(seen, ["first 1", "first 2", "second 1", "second 2"])
        assert.deepStrictEqual(yield* servers, ["a", "b"])
      })
    )
  )

  it.effect("followers are called by stage, in any order of registration", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const journal = yield* Journal
        const seen: Array<string> = []
        const stages = ["publish", "controllers", "read-model", "publish", "read-model"] as const
        for (const [index, stage] of stages.entries()) {
          yield* journal.follow(stage, () => Effect.sync(() => seen.push(`${stage} ${index}`)))
        }
        yield* store.write(append("a"))
        assert.deepStrictEqual(seen, [
          "read-model 2",
          "read-model 4",
          "controllers 1",
          "publish 0",
          "publish 3"
        ])
      })
    )
  )

  it.effect("1,000 concurrent writes share a few commits of at most 500", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const before = yield* commits
        yield* Effect.forEach(Array.from({ length: 1_000 }), (_, i) => store.write(append(`s${i}`)), {
          concurrency: "unbounded",
          discard: true
        })
        const used = (yield* commits) - before
        assert.isAtLeast(used, 2)
        assert.isAtMost(used, 10)
        assert.strictEqual((yield* servers).length, 1_000)
      })
    )
  )

  it.effect("a failing mutation is rolled back alone, for any failure", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const sql = yield* SqlClient.SqlClient
        yield* store.write(table(sql))
        const note = noteIn(sql)
        const exits = yield* Effect.forEach(
          [
            note(1, "one"),
            Effect.andThen(note(2, "typed"), Effect.fail("no")),
            Effect.andThen(note(3, "defect"), Effect.die("oh")),
            note(1, "constraint"),
            Effect.andThen(note(4, "syntax"), sql`SELEKT`),
            Effect.andThen(note(5, "interrupted"), Effect.interrupt),
            note(6, "six")
          ],
          (mutation) => Effect.exit(store.write(mutation)),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(yield* notes, ["one", "six"])
        assert.deepStrictEqual(yield* servers, ["one", "six"])
        assert.deepStrictEqual(exits.map(Exit.isSuccess), [true, false, false, false, false, false, true])
        assert.deepStrictEqual(exits[1], Exit.fail("no"))
        assert.deepStrictEqual(exits[2], Exit.die("oh"))
        assert.isTrue(exits[3] !== undefined && Exit.hasDies(exits[3]) && !Exit.hasFails(exits[3]))
        assert.isTrue(exits[4] !== undefined && Exit.hasDies(exits[4]) && !Exit.hasFails(exits[4]))
        assert.isTrue(exits[5] !== undefined && Exit.hasInterrupts(exits[5]))
      })
    )
  )

  it.effect("writes of one kind in one transaction are one mutation, and each gets its own result", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const asked: Array<ReadonlyArray<number>> = []
        const double = store.together((requests: ReadonlyArray<number>) =>
          Effect.gen(function* () {
            asked.push(requests)
            yield* append(...requests.map((n) => `s${n}`))
            return requests.map((n) => 2 * n)
          })
        )
        const numbers = Array.from({ length: 250 }, (_, n) => n)
        const answers = yield* Effect.forEach(numbers, double, { concurrency: "unbounded" })
        assert.deepStrictEqual(
          answers,
          numbers.map((n) => 2 * n)
        )
        assert.deepStrictEqual(asked.flat(), numbers)
        assert.isAtMost(asked.length, 20)
        assert.isAtMost(Math.max(...asked.map(({ length }) => length)), 50)
        assert.deepStrictEqual(
          yield* servers,
          numbers.map((n) => `s${n}`)
        )
      })
    )
  )

  it.effect("if a shared mutation fails, it is rolled back and each write is carried out alone", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const sql = yield* SqlClient.SqlClient
        yield* store.write(table(sql))
        const note = store.together((texts: ReadonlyArray<string>) =>
          Effect.gen(function* () {
            for (const text of texts) {
              yield* append(text)
              yield* sql`INSERT INTO notes (id, text) VALUES (${text.length}, ${text})`
              if (text === "typed") return yield* Effect.fail("no" as const)
            }
            return texts
          })
        )
        const exits = yield* Effect.forEach(
          ["a", "typed", "bb", "cc", "ddd"],
          (text) => Effect.exit(note(text)),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(exits.map(Exit.isSuccess), [true, false, true, false, true])
        assert.deepStrictEqual(exits[1], Exit.fail("no"))
        assert.isTrue(exits[3] !== undefined && Exit.hasDies(exits[3]) && !Exit.hasFails(exits[3]))
        assert.deepStrictEqual(yield* notes, ["a", "bb", "ddd"])
        assert.deepStrictEqual(yield* servers, ["a", "bb", "ddd"])
      })
    )
  )

  it.effect("a mutation that leaves a request without a result is a defect and is rolled back", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const none = store.together((requests: ReadonlyArray<string>) => Effect.as(append(...requests), []))
        const exits = yield* Effect.forEach(["a", "b"], (id) => Effect.exit(none(id)), {
          concurrency: "unbounded"
        })
        assert.isTrue(exits.every(Exit.hasDies))
        assert.deepStrictEqual(yield* servers, [])
      })
    )
  )

  it.effect("an interrupted waiting write is not carried out; the writer continues", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const begun = yield* Deferred.make<void>()
        const goOn = yield* Deferred.make<void>()
        const first = yield* Effect.forkChild(
          store.write(
            Effect.gen(function* () {
              yield* append("first")
              yield* Deferred.succeed(begun, undefined)
              yield* Deferred.await(goOn)
            })
          )
        )
        yield* Deferred.await(begun)
        const waiting = yield* Effect.forkChild(store.write(append("waiting")), { startImmediately: true })
        yield* Fiber.interrupt(waiting)
        // A write in progress: its transaction is completed.
        yield* Fiber.interrupt(first)
        yield* Deferred.succeed(goOn, undefined)
        yield* store.write(append("after"))
        assert.deepStrictEqual(yield* servers, ["first", "after"])
      })
    )
  )

  it.effect("a write inside a mutation or a follower is a defect, not a deadlock", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const journal = yield* Journal
        const inner = yield* Effect.exit(store.write(store.write(append("inner"))))
        assert.isTrue(Exit.hasDies(inner))
        const follower = yield* Deferred.make<Exit.Exit<unknown, unknown>>()
        yield* journal.follow("publish", () =>
          Effect.flatMap(Effect.exit(store.write(append("again"))), (exit) =>
            Effect.asVoid(Deferred.succeed(follower, exit))
          )
        )
        yield* store.write(append("outer"))
        assert.isTrue(Exit.hasDies(yield* Deferred.await(follower)))
        assert.deepStrictEqual(yield* servers, ["outer"])
      })
    )
  )

  it.effect("a follower that dies stops neither the write nor the next follower", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const journal = yield* Journal
        const seen: Array<number> = []
        yield* journal.follow("publish", () => Effect.die("a broken follower"))
        yield* journal.follow("publish", (entries) =>
          Effect.sync(() => entries.map((entry) => seen.push(entry.cursor)))
        )
        yield* store.write(append("a"))
        yield* store.write(append("b"))
        assert.deepStrictEqual(seen, [1, 2])
      })
    )
  )

  it.effect("accepted writes are committed when the store closes; later writes are unavailable", () =>
    Effect.gen(function* () {
      const url = yield* newUrl(kind)
      const scope = yield* Scope.make()
      const context = yield* Layer.buildWithScope(storeAt(url), scope)
      const { write, ping } = yield* Effect.provide(Store, context)
      const writes = yield* Effect.forkChild(
        Effect.forEach(Array.from({ length: 50 }), (_, i) => write(append(`s${i}`)), {
          concurrency: "unbounded",
          discard: true
        }),
        { startImmediately: true }
      )
      yield* Scope.close(scope, Exit.void)
      yield* Fiber.join(writes)
      const late = yield* Effect.flip(write(append("late")))
      assert.strictEqual(late._tag, "Unavailable")
      assert.strictEqual((yield* Effect.flip(ping))._tag, "Unavailable")
      const kept = yield* Effect.provide(servers, storeAt(url))
      assert.strictEqual(kept.length, 50)
    }).pipe(Effect.provide(NodeServices.layer))
  )
})

describe("design: database away", () => {
  const onFreshStore = onFresh("sqlite")

  it.effect(
    "while another process holds the lock, the store is unavailable; afterwards it works as before",
    () =>
      Effect.gen(function* () {
        const filename = yield* newDatabase
        yield* Effect.gen(function* () {
          const store = yield* Store
          const other = yield* openDatabase({ filename, busyTimeoutMillis: 0, setup: "BEGIN IMMEDIATE" })
          const writing = yield* Effect.forkChild(Effect.flip(store.write(append("lost"))), {
            startImmediately: true
          })
          yield* Effect.forEach(Array.from({ length: 300 }), () => TestClock.adjust("20 millis"), {
            discard: true
          })
          const error = yield* Fiber.join(writing)
          assert.match(error.detail, /^the database is locked: another session has held a lock/)
          yield* store.ping
          other.exec("ROLLBACK")
          yield* store.write(append("kept"))
          assert.deepStrictEqual(yield* servers, ["kept"])
        }).pipe(Effect.provide(layerSqlite({ filename })))
      }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.effect("on a full disk the whole transaction is rolled back, also if a mutation hides the error", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const sql = yield* SqlClient.SqlClient
        yield* store.write(table(sql))
        const fill = Effect.gen(function* () {
          const [pages] = yield* sql<{ page_count: number }>`PRAGMA page_count`
          yield* sql`PRAGMA max_page_count = ${sql.literal(String((pages?.page_count ?? 0) + 4))}`
          yield* append("full")
          yield* sql`INSERT INTO notes (text) VALUES (${"x".repeat(1_000_000)})`
        })
        const exits = yield* Effect.forEach(
          [
            Effect.andThen(append("before"), sql`INSERT INTO notes (text) VALUES ('before')`),
            Effect.ignore(fill),
            Effect.ignore(sql`INSERT INTO notes (text) VALUES (${"y".repeat(1_000_000)})`),
            fill
          ],
          (mutation) => Effect.exit(store.write(mutation)),
          { concurrency: "unbounded" }
        )
        assert.isTrue(exits.every(Exit.isFailure))
        yield* store.write(sql`PRAGMA max_page_count = 1000000`)
        yield* store.write(append("after"))
        assert.deepStrictEqual(yield* servers, ["after"])
        assert.deepStrictEqual(yield* notes, [])
      })
    )
  )
})

describe.each(databases)("design: isolation of writes (%s)", (kind) => {
  const onFreshStore = onFresh(kind)

  it.effect("if one write makes the commit fail, the other writes of the transaction are kept", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const sql = yield* SqlClient.SqlClient
        yield* store.write(table(sql))
        yield* store.write(
          sql`CREATE TABLE links (id INTEGER REFERENCES notes (id) DEFERRABLE INITIALLY DEFERRED)`
        )
        const innocents = ["a", "b", "c", "d"].map((id) => append(id))
        const exits = yield* Effect.forEach(
          [...innocents.slice(0, 2), Effect.andThen(append("guilty"), linkTo(sql, 9)), ...innocents.slice(2)],
          (mutation) => Effect.exit(store.write(mutation)),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(exits.map(Exit.isSuccess), [true, true, false, true, true])
        assert.isTrue(exits[2] !== undefined && Exit.hasDies(exits[2]) && !Exit.hasFails(exits[2]))
        assert.deepStrictEqual(yield* servers, ["a", "b", "c", "d"])
        assert.deepStrictEqual(yield* query("SELECT MAX(cursor) AS newest FROM journal"), [{ newest: 4 }])
      })
    )
  )

  it.effect("a statement outside of a write transaction cannot change anything", () =>
    onFreshStore(
      Effect.gen(function* () {
        const store = yield* Store
        const sql = yield* SqlClient.SqlClient
        const before = yield* query("SELECT name FROM counters")
        const exit = yield* Effect.exit(store.read(sql`DELETE FROM counters`))
        assert.isTrue(Exit.isFailure(exit))
        assert.isAbove(before.length, 0)
        assert.deepStrictEqual(yield* query("SELECT name FROM counters"), before)
      })
    )
  )
})
