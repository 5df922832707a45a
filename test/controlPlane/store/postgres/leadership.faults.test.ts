import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Scope, Stream } from "effect"
import { until } from "../../../support/eventually.ts"
import { startPostgres } from "../../../support/postgres.ts"
import { newPostgresDatabase, statementsOn } from "../../../support/postgresDatabase.ts"
import { linesOf, startChild } from "../support/children.ts"
import { append } from "../support/database.ts"
import { startReplica } from "../support/replicas.ts"

type Replica = Effect.Success<ReturnType<typeof startReplica>>

/** Work that records its start and end, and the journal position at its start. */
const work = Effect.fnUntraced(function* (replica: Replica) {
  const log: Array<string> = []
  yield* replica.leadership.whileLeader(
    Effect.acquireRelease(
      Effect.sync(() => log.push(`begins ${replica.seen.length}`)),
      () => Effect.sync(() => log.push("ends"))
    ).pipe(Effect.andThen(Effect.never))
  )
  return log
})

/** Terminates the connections that hold the advisory lock of the leader. */
const endHolder = (url: string) =>
  statementsOn(
    url,
    `SELECT pg_terminate_backend(pid) FROM pg_locks
     WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
  )

/** A process that works whenever it is the leader, and its output. */
const startWorker = Effect.fnUntraced(function* (url: string, name: string) {
  const child = yield* startChild("lead.ts", url, name)
  const lines: Array<string> = []
  yield* Effect.forkScoped(Stream.runForEach(linesOf(child), (line) => Effect.sync(() => lines.push(line))))
  yield* until(
    `${name} is up`,
    Effect.sync(() => lines.includes(`${name} ready`))
  )
  const acts = () => lines.filter((line) => !line.endsWith("ready")).map((line) => Number(line.split(" ")[1]))
  return {
    acts,
    more: Effect.suspend(() => {
      const before = acts().length
      return until(
        `${name} acts`,
        Effect.sync(() => acts().length > before)
      )
    }),
    signal: (signal: "SIGSTOP" | "SIGCONT" | "SIGKILL") => Effect.sync(() => process.kill(child.pid, signal))
  }
})

describe("design: one replica is the leader", () => {
  it.live("the work is interrupted when the leadership is lost, and starts again when it is regained", () =>
    Effect.gen(function* () {
      const url = yield* newPostgresDatabase()
      const scope = yield* Scope.make()
      const one = yield* Scope.provide(startReplica(url), scope)
      const other = yield* startReplica(url)
      const [first, second] = [yield* Scope.provide(work(one), scope), yield* work(other)]
      assert.deepStrictEqual(first, ["begins 0"])
      // A new leader has read all commits of the previous one.
      for (let i = 0; i < 100; i++) yield* one.store.write(append(`s${i}`))
      assert.deepStrictEqual(second, [])
      yield* Scope.close(scope, Exit.void)
      yield* until("the other begins", other.leadership.isLeader)
      assert.deepStrictEqual(first, ["begins 0", "ends"])
      assert.deepStrictEqual(second, ["begins 100"])
      yield* endHolder(url)
      yield* until(
        "it starts again",
        Effect.sync(() => second.length === 3)
      )
      assert.deepStrictEqual(second.slice(1), ["ends", "begins 100"])
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("the leader restarts its work after a failure", () =>
    Effect.gen(function* () {
      const replica = yield* startReplica(yield* newPostgresDatabase())
      let rounds = 0
      yield* replica.leadership.whileLeader(
        Effect.suspend(() => {
          rounds += 1
          return rounds === 1 ? Effect.fail("broken") : Effect.void
        })
      )
      yield* until(
        "it is done again",
        Effect.sync(() => rounds === 2)
      )
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live("no replica is the leader while the database does not respond", () =>
    Effect.gen(function* () {
      const server = yield* startPostgres()
      const url = yield* newPostgresDatabase(server)
      const replica = yield* startReplica(url, { answerMillis: 650 })
      const log = yield* work(replica)
      yield* server.freeze
      yield* until(
        "the work ends",
        Effect.sync(() => log.length === 2)
      )
      assert.isFalse(yield* replica.leadership.isLeader)
      yield* server.thaw
      yield* until(
        "the work begins again",
        Effect.sync(() => log.length === 3)
      )
    }).pipe(Effect.scoped, Effect.provide(NodeServices.layer))
  )

  it.live(
    "if the leader is killed or frozen, another replica becomes leader, and a resumed process does no more work",
    () =>
      Effect.gen(function* () {
        const url = yield* newPostgresDatabase()
        const one = yield* startWorker(url, "one")
        yield* one.more
        const other = yield* startWorker(url, "other")
        assert.deepStrictEqual(other.acts(), [])
        yield* one.signal("SIGSTOP")
        yield* other.more
        yield* one.signal("SIGCONT")
        yield* other.more
        const third = yield* startWorker(url, "third")
        yield* other.signal("SIGKILL")
        const heir = yield* Effect.raceFirst(Effect.as(one.more, 0), Effect.as(third.more, 2))
        // The intervals of the leaders' work do not overlap.
        const acts = [one, other, third]
          .flatMap((worker, number) => worker.acts().map((at) => ({ at, number })))
          .toSorted((a, b) => a.at - b.at)
        const turns = acts.filter(({ number }, i) => i === 0 || acts[i - 1]?.number !== number)
        assert.deepStrictEqual(
          turns.map(({ number }) => number),
          [0, 1, heir]
        )
        const began = other.acts()[0] ?? 0
        const ended = acts.findLast(({ at, number }) => number === 0 && at < began)?.at ?? 0
        yield* Effect.logInfo(`a frozen process was relieved after ${((began - ended) / 1e6).toFixed(1)} s`)
      }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)),
    120_000
  )
})
