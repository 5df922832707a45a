import { NodeServices } from "@effect/platform-node"
import { PgConnection } from "@effect/sql-pg"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, Latch, Logger, Redacted, Ref, Scope, Stream } from "effect"
import * as fc from "fast-check"
import { ServerId } from "../../../../src/contract/domain/Id.ts"
import { serverOf } from "../../../../src/contract/domain/Journal.ts"
import { advisoryLocks } from "../../../../src/controlPlane/store/sql/Backend.ts"
import { until } from "../../../support/eventually.ts"
import { plain } from "../../../support/ids.ts"
import { newPostgresDatabase, statementsOn } from "../../../support/postgresDatabase.ts"
import { server } from "../../../support/samples.ts"
import { append } from "../support/database.ts"
import { startReplica } from "../support/replicas.ts"

const onDatabase = <A, E>(test: (url: string) => Effect.Effect<A, E, Scope.Scope>) =>
  Effect.flatMap(newPostgresDatabase(), test).pipe(Effect.scoped, Effect.provide(NodeServices.layer))

type Replica = Effect.Success<ReturnType<typeof startReplica>>

const wholeJournal = (replica: Replica) => Stream.runCollect(replica.journal.after(0))

/** Repeats a write that was refused unchanged: on a busy machine, another replica has the lock for too long. */
const accepted = <A, E extends { readonly code: string }>(write: Effect.Effect<A, E>) =>
  Effect.retry(write, { while: ({ code }) => code === "503", times: 50 })

/** Terminates every connection of any replica to the database. */
const cutConnections = (url: string) =>
  statementsOn(
    url,
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()`
  )

/** Asserts that followers of both replicas received the whole journal, and returns it. */
const assertOneOrder = Effect.fnUntraced(function* (replicas: ReadonlyArray<Replica>) {
  const [first] = replicas
  if (first === undefined) return []
  const kept = yield* wholeJournal(first)
  assert.deepStrictEqual(
    kept.map((entry) => entry.cursor),
    kept.map((_, index) => index + 1)
  )
  for (const replica of replicas) {
    yield* until(
      "the follower has seen all",
      Effect.sync(() => replica.seen.length >= kept.length)
    )
    assert.deepStrictEqual(replica.seen, Array.from(kept))
  }
  return kept
})

describe("design: replicas are equal", () => {
  it.live("every replica publishes the same events in the same order, its own at once", () =>
    onDatabase((url) =>
      Effect.gen(function* () {
        const replicas = [yield* startReplica(url), yield* startReplica(url), yield* startReplica(url)]
        yield* Effect.forEach(
          Array.from({ length: 300 }),
          (_, i) => {
            const replica = replicas[i % 3]
            if (replica === undefined) return Effect.void
            return Effect.map(replica.store.write(append(`s${i}`, `s${i}`)), () =>
              // Read your own writes: the local follower has received it before the write returns.
              assert.strictEqual(replica.seen.filter((entry) => serverOf(entry.change) === `s${i}`).length, 2)
            )
          },
          { concurrency: 24, discard: true }
        )
        const kept = yield* assertOneOrder(replicas)
        assert.strictEqual(kept.length, 600)
      })
    )
  )

  it.live("an interrupted read of foreign entries withholds no entry from the followers", () =>
    onDatabase((url) =>
      Effect.gen(function* () {
        const [one, other] = [yield* startReplica(url), yield* startReplica(url)]
        const reached = yield* Latch.make(false)
        const goOn = yield* Latch.make(false)
        yield* other.journal.follow("publish", () => Effect.andThen(reached.open, goOn.await))
        const late: Array<string | undefined> = []
        yield* other.journal.follow("publish", (entries) =>
          Effect.sync(() => late.push(...entries.map(({ change }) => serverOf(change))))
        )
        yield* one.store.write(append("s1", "s2"))
        const asking = yield* Effect.forkChild(other.journal.catchUp)
        yield* reached.await
        yield* Fiber.interrupt(asking)
        yield* goOn.open
        yield* one.store.write(append("s3"))
        yield* other.journal.catchUp
        assert.deepStrictEqual(late, ["s1", "s2", "s3"])
      })
    )
  )

  it.live("a cursor of one replica resumes on another", () =>
    onDatabase((url) =>
      Effect.gen(function* () {
        const [one, other] = [yield* startReplica(url), yield* startReplica(url)]
        for (const i of [1, 2, 3, 4]) yield* (i % 2 === 0 ? one : other).store.write(append(`s${i}`))
        const cursor = one.seen[1]?.cursor ?? 0
        assert.deepStrictEqual(
          (yield* Stream.runCollect(other.journal.after(cursor))).map((entry) => serverOf(entry.change)),
          [ServerId.make("s3"), ServerId.make("s4")]
        )
        assert.deepStrictEqual(yield* one.journal.bounds, yield* other.journal.bounds)
      })
    )
  )

  it("for any lost connections: no gap, one order, acknowledged writes are kept and refused writes are not", () => {
    const property = fc.asyncProperty(
      fc.array(fc.record({ pause: fc.nat({ max: 25 }) }), { minLength: 3, maxLength: 8 }),
      (cuts) =>
        onDatabase((url) =>
          Effect.gen(function* () {
            const replicas = [yield* startReplica(url), yield* startReplica(url)]
            const acknowledged = new Set<string>()
            const refused = new Set<string>()
            const done = yield* Ref.make(false)
            const clients = yield* Effect.forkChild(
              Effect.forEach(
                replicas.flatMap((replica, r) => Array.from({ length: 4 }, (_, c) => ({ replica, r, c }))),
                ({ c, r, replica }) =>
                  Effect.gen(function* () {
                    for (let i = 0; !(yield* Ref.get(done)); i++) {
                      const id = `${r}-${c}-${i}`
                      const exit = yield* Effect.exit(replica.store.write(append(id)))
                      if (Exit.isSuccess(exit)) acknowledged.add(id)
                      else refused.add(id)
                      yield* Effect.sleep("1 millis")
                    }
                  }),
                { concurrency: "unbounded", discard: true }
              )
            )
            for (const { pause } of cuts) {
              yield* Effect.sleep(pause)
              yield* cutConnections(url)
            }
            yield* Effect.sleep("50 millis")
            yield* Ref.set(done, true)
            yield* Fiber.join(clients)
            for (const replica of replicas) {
              yield* until(
                "writes succeed again",
                Effect.map(Effect.exit(replica.store.write(append("after"))), Exit.isSuccess)
              )
            }
            const kept = yield* assertOneOrder(replicas)
            const published = kept.map((entry) => serverOf(entry.change))
            const once = plain(new Set(published.filter((id) => id !== "after")))
            assert.strictEqual(once.size, published.filter((id) => id !== "after").length)
            assert.deepStrictEqual(
              [...acknowledged].filter((id) => !once.has(id)),
              []
            )
            assert.deepStrictEqual(
              [...refused].filter((id) => once.has(id)),
              []
            )
          })
        ).pipe(Effect.runPromise)
    )
    return fc.assert(property, { numRuns: 6 })
  })

  it.live("of many concurrent requests for a port at any replica, one succeeds", () =>
    onDatabase((url) =>
      Effect.gen(function* () {
        const replicas = [yield* startReplica(url), yield* startReplica(url)]
        const outcomes = yield* Effect.forEach(
          Array.from({ length: 60 }, (_, i) => ({ i, replica: replicas[i % 2] })),
          ({ i, replica }) =>
            replica === undefined
              ? Effect.succeed("port-taken" as const)
              : accepted(
                  replica.store.write(
                    replica.servers.insert(server(`srv_${String(i).padStart(3, "0")}`, [25_565, 30_000 + i]))
                  )
                ),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(outcomes.filter((outcome) => outcome === "inserted").length, 1)
      })
    )
  )

  it.live(
    "write transactions of all replicas are serialized: a value read in one is current until its commit",
    () =>
      onDatabase((url) =>
        Effect.gen(function* () {
          const replicas = [yield* startReplica(url), yield* startReplica(url), yield* startReplica(url)]
          const LIMIT = 40
          // Only the value that it has read keeps a mutation from adding one more.
          const addUnlessFull = (replica: Replica, id: string) =>
            accepted(
              replica.store.write(
                Effect.gen(function* () {
                  if ((yield* replica.servers.all).length >= LIMIT) return "full" as const
                  const outcome = yield* replica.servers.insert(server(id, [20_000 + Number(id)]))
                  yield* append(id)
                  return outcome
                })
              )
            )
          const outcomes = yield* Effect.forEach(
            Array.from({ length: 300 }, (_, i) => i),
            (i) => {
              const replica = replicas[i % 3]
              return replica === undefined
                ? Effect.die(new Error("unreachable"))
                : addUnlessFull(replica, String(i))
            },
            { concurrency: 30 }
          )
          assert.strictEqual(outcomes.filter((outcome) => outcome === "inserted").length, LIMIT)
          assert.strictEqual((yield* assertOneOrder(replicas)).length, LIMIT)
        })
      )
  )

  it.live("a process that is frozen in a transaction delays the others only briefly", () => {
    const messages: Array<unknown> = []
    const logger = Logger.make(({ message }) => {
      messages.push(message)
    })
    return onDatabase((url) =>
      Effect.gen(function* () {
        const replica = yield* startReplica(url, { answerMillis: 650 })
        // The server terminates an idle session; this one has the same timeout, takes the lock and sleeps.
        yield* PgConnection.make({
          url: Redacted.make(url),
          startupParameters: { idle_in_transaction_session_timeout: "2000" }
        }).pipe(
          Effect.flatMap((frozen) =>
            Effect.gen(function* () {
              yield* frozen.query("BEGIN", [], false)
              yield* frozen.query(`SELECT pg_advisory_xact_lock(${advisoryLocks.writing})`, [], false)
              const refused = yield* Effect.flip(replica.store.write(append("a")))
              assert.strictEqual(refused.code, "503")
              assert.match(refused.detail, /^the database is locked: another session/)
              assert.match(messages.join(), /lock timeout \(55P03\)/)
              yield* until(
                "writes succeed again",
                Effect.map(Effect.exit(replica.store.write(append("b"))), Exit.isSuccess)
              )
            })
          )
        )
        assert.deepStrictEqual(
          (yield* wholeJournal(replica)).map((entry) => serverOf(entry.change)),
          [ServerId.make("b")]
        )
      }).pipe(Effect.provide(Logger.layer([logger])))
    )
  })

  it.live("one replica is the leader; when it ends, another becomes leader", () =>
    onDatabase((url) =>
      Effect.gen(function* () {
        const scope = yield* Scope.make()
        const one = yield* Scope.provide(startReplica(url), scope)
        const other = yield* startReplica(url)
        assert.isTrue(yield* one.leadership.isLeader)
        assert.isFalse(yield* other.leadership.isLeader)
        yield* Scope.close(scope, Exit.void)
        yield* until("the other does them", other.leadership.isLeader)
      })
    )
  )

  it.live("an entry whose notification was lost is still read", () =>
    onDatabase((url) =>
      Effect.gen(function* () {
        const replica = yield* startReplica(url)
        yield* statementsOn(
          url,
          `WITH next AS (UPDATE counters SET value = value + 1 WHERE name = 'journal' RETURNING value)
           INSERT INTO journal (cursor, at, topic, server_id, blueprint_id, payload)
           SELECT value, 1, 'status', 'silent', 'survival', '"running"' FROM next`
        )
        yield* until(
          "it is seen",
          Effect.sync(() => replica.seen.some((entry) => serverOf(entry.change) === "silent"))
        )
      })
    )
  )
})
