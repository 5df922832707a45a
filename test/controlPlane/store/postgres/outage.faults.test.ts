import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Fiber, type Scope, Stream } from "effect"
import { ServerId } from "../../../../src/contract/domain/Id.ts"
import { serverOf } from "../../../../src/contract/domain/Journal.ts"
import { until } from "../../../support/eventually.ts"
import { tcpProxy } from "../../../support/faults/index.ts"
import { type PostgresServer, startPostgres } from "../../../support/postgres.ts"
import { newPostgresDatabase, statementsOn } from "../../../support/postgresDatabase.ts"
import { append } from "../support/database.ts"
import { startReplica } from "../support/replicas.ts"

/** The default deadline of a service. */
const deadline = { answerMillis: 650 }

const onServer = <A, E>(
  test: (server: PostgresServer, url: string) => Effect.Effect<A, E, Scope.Scope>,
  settings: Readonly<Record<string, string>> = {}
) =>
  Effect.gen(function* () {
    const server = yield* startPostgres({ durable: true, settings })
    return yield* test(server, yield* newPostgresDatabase(server))
  }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))

type Replica = Effect.Success<ReturnType<typeof startReplica>>

const ids = (replica: Replica) =>
  Effect.map(Stream.runCollect(replica.journal.after(0)), (entries) =>
    entries.map((entry) => serverOf(entry.change))
  )

const writes = (replica: Replica, id: string) =>
  until(`${id} is written`, Effect.map(Effect.exit(replica.store.write(append(id))), Exit.isSuccess))

const isUnavailable = (exit: Exit.Exit<unknown, { readonly _tag: string }>) =>
  Exit.isFailure(exit) && JSON.stringify(exit.cause).includes("Unavailable")

/** A write whose commit takes that many seconds, so that a fault can occur during it. */
const slowCommit = Effect.fnUntraced(function* (replica: Replica, url: string, seconds: number) {
  yield* statementsOn(
    url,
    `CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql
     AS 'BEGIN PERFORM pg_sleep(${seconds}); RETURN NULL; END'`,
    `CREATE CONSTRAINT TRIGGER linger AFTER INSERT ON journal DEFERRABLE INITIALLY DEFERRED
     FOR EACH ROW WHEN (NEW.server_id = 'slow') EXECUTE FUNCTION linger()`
  )
  const slow = yield* Effect.forkChild(Effect.exit(replica.store.write(append("slow"))))
  yield* until(
    "the commit is under way",
    Effect.map(
      statementsOn(
        url,
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
      ),
      ([asleep]) => (asleep?.length ?? 0) > 0
    )
  )
  return slow
})

describe("spec 9.6: database away", () => {
  it.live("frozen: reads and writes are unavailable at once, and work again when it resumes", () =>
    onServer((server, url) =>
      Effect.gen(function* () {
        const replica = yield* startReplica(url, deadline)
        yield* replica.store.write(append("before"))
        yield* server.freeze
        // The first write detects the outage; the others fail at once.
        const answers = yield* Effect.forEach(
          Array.from({ length: 20 }, (_, i) => `lost${i}`),
          (id) => Effect.exit(replica.store.write(append(id))),
          { concurrency: "unbounded" }
        )
        assert.isTrue(answers.every(isUnavailable))
        assert.isTrue(isUnavailable(yield* Effect.exit(replica.store.write(append("lost")))))
        assert.isTrue(isUnavailable(yield* Effect.exit(replica.store.ping)))
        assert.isTrue(isUnavailable(yield* Effect.exit(replica.journal.bounds)))
        yield* server.thaw
        yield* writes(replica, "after")
        const kept = yield* ids(replica)
        assert.deepStrictEqual(kept.slice(0, 1), [ServerId.make("before")])
        assert.deepStrictEqual(
          kept.filter((id) => id?.startsWith("lost") === true),
          []
        )
        yield* replica.store.ping
        assert.deepStrictEqual(
          replica.seen.map((entry) => serverOf(entry.change)),
          Array.from(kept)
        )
      })
    )
  )

  it.live(
    "stopped or dead: the store is unavailable and, after the restart, has every acknowledged write",
    () =>
      onServer((server, url) =>
        Effect.gen(function* () {
          const [one, other] = [yield* startReplica(url, deadline), yield* startReplica(url, deadline)]
          for (const end of [server.stop, server.kill]) {
            const round = one.seen.length
            yield* one.store.write(append(`before ${round}`))
            yield* end
            yield* until(
              "writes are unavailable",
              Effect.map(Effect.exit(one.store.write(append(`lost ${round}`))), isUnavailable)
            )
            yield* server.start
            yield* writes(one, `one ${round}`)
            yield* writes(other, `other ${round}`)
            yield* until(
              "both followers have seen all",
              Effect.map(ids(one), (kept) => [one, other].every(({ seen }) => seen.length === kept.length))
            )
          }
          assert.deepStrictEqual(one.seen, other.seen)
          const published = one.seen.map((entry) => serverOf(entry.change))
          assert.strictEqual(published.filter((id) => id?.startsWith("before") === true).length, 2)
          assert.isTrue(
            yield* Effect.raceFirst(
              Effect.as(
                until(
                  "another replica is the leader",
                  Effect.orElseSucceed(one.leadership.isLeader, () => false)
                ),
                true
              ),
              Effect.as(until("another replica is the leader", other.leadership.isLeader), true)
            )
          )
        })
      )
  )

  it.live("the loss of one connection is not an outage: the write is made on another connection", () =>
    onServer((_, url) =>
      Effect.gen(function* () {
        const replica = yield* startReplica(url)
        for (let i = 0; i < 5; i++) {
          yield* replica.store.write(append(`a${i}`))
          yield* statementsOn(
            url,
            `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE datname = current_database() AND pid <> pg_backend_pid()`
          )
          yield* replica.store.write(append(`b${i}`))
        }
        assert.strictEqual((yield* ids(replica)).length, 10)
      })
    )
  )

  it.live("without free connections the store is unavailable, and its open connections keep working", () =>
    Effect.gen(function* () {
      const server = yield* startPostgres({ settings: { max_connections: "10" } })
      const url = yield* newPostgresDatabase(server)
      // One connection for the tail and one for each concurrent write; the server reserves three for administrators.
      const replica = yield* startReplica(url, deadline)
      const many = yield* Effect.forEach(
        Array.from({ length: 60 }),
        (_, i) => Effect.exit(Effect.all([replica.store.ping, replica.store.write(append(`s${i}`))])),
        { concurrency: "unbounded" }
      )
      assert.isTrue(many.some(Exit.isSuccess))
      yield* replica.store.ping
      yield* replica.store.write(append("after"))
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )
})

describe("design: the response to a COMMIT is lost", () => {
  it.live("committed: the write succeeds once, and its followers have received it", () =>
    onServer((server, url) =>
      Effect.gen(function* () {
        const proxy = yield* tcpProxy(server.port)
        const replica = yield* startReplica(proxy.through(url))
        yield* replica.store.write(append("before"))
        // The tag of a CommandComplete message.
        yield* proxy.cutAt((chunk) => chunk.includes("COMMIT\0"))
        yield* replica.store.write(append("kept"))
        assert.isTrue(proxy.hasCut())
        assert.deepStrictEqual(yield* ids(replica), [ServerId.make("before"), ServerId.make("kept")])
        assert.deepStrictEqual(
          replica.seen.map((entry) => serverOf(entry.change)),
          [ServerId.make("before"), ServerId.make("kept")]
        )
      })
    )
  )

  it.live("not committed: the write is unavailable and changes nothing", () =>
    onServer((_, url) =>
      Effect.gen(function* () {
        const replica = yield* startReplica(url)
        const slow = yield* slowCommit(replica, url, 60)
        yield* statementsOn(
          url,
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE datname = current_database() AND wait_event = 'PgSleep'`
        )
        assert.isTrue(isUnavailable(yield* Fiber.join(slow)))
        yield* replica.store.write(append("after"))
        assert.deepStrictEqual(yield* ids(replica), [ServerId.make("after")])
      })
    )
  )

  it.live(
    "frozen during the commit: every caller gets a response, that write an unknown outcome, which is resolved later",
    () =>
      onServer((server, url) =>
        Effect.gen(function* () {
          const replica = yield* startReplica(url, deadline)
          const slow = yield* slowCommit(replica, url, 0.3)
          yield* server.freeze
          assert.isTrue(isUnavailable(yield* Effect.exit(replica.store.write(append("other")))))
          // The response comes before the outcome is known.
          const exit = yield* Fiber.join(slow)
          assert.isTrue(isUnavailable(exit))
          assert.include(JSON.stringify(exit), "It is unknown whether the change was made")
          yield* server.thaw
          yield* writes(replica, "after")
          const kept = yield* ids(replica)
          assert.notInclude(kept, ServerId.make("other"))
          assert.deepStrictEqual(
            replica.seen.map((entry) => serverOf(entry.change)),
            Array.from(kept)
          )
        })
      )
  )

  it.live(
    "not committed, and PostgreSQL gives its number to another transaction: its entries are not published",
    () =>
      onServer(
        (server, url) =>
          Effect.gen(function* () {
            const proxy = yield* tcpProxy(server.port)
            const replica = yield* startReplica(proxy.through(url), deadline)
            yield* replica.store.write(append("before"))
            const slow = yield* slowCommit(replica, url, 60)
            const ofSlow = `SELECT backend_xid::text AS id FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event = 'PgSleep'`
            const [[lost] = []] = yield* statementsOn(url, ofSlow)
            yield* proxy.dropped.inject
            yield* server.kill
            yield* server.start
            const [[other] = []] = yield* statementsOn(url, "SELECT pg_current_xact_id()::text AS id")
            assert.deepStrictEqual(other, lost, "the number is used again")
            yield* proxy.dropped.heal
            assert.isTrue(isUnavailable(yield* Fiber.join(slow)))
            yield* writes(replica, "after")
            const kept = yield* ids(replica)
            assert.deepStrictEqual(kept, [ServerId.make("before"), ServerId.make("after")])
            assert.deepStrictEqual(
              replica.seen.map((entry) => serverOf(entry.change)),
              Array.from(kept)
            )
          }),
        // Nothing of the transaction is written before the server is killed.
        { wal_writer_delay: "10s" }
      )
  )
})
