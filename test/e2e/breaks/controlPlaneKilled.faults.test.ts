import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { isPublic } from "../../../src/contract/domain/Journal.ts"
import type { ServerEvent } from "../../../src/contract/domain/ServerEvent.ts"
import { makeChaos, type Promised } from "../../support/chaos.ts"
import { readDatabase } from "../../support/database.ts"
import { eventsAre, replay, subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import type { RestartingService } from "../../support/faults/index.ts"
import {
  committedMemory,
  journalProblems,
  type ListedServer,
  portProblems,
  processProblems
} from "../../support/invariants.ts"
import { mainProcess, serverProcesses, shimProcess } from "../../support/processes.ts"
import { freshSeed, seeded } from "../../support/random.ts"
import type { Service } from "../../support/Service.ts"
import { becomes, expectStatus, powered, running } from "../../support/servers.ts"
import { testDatabase } from "../../support/testDatabase.ts"
import { range, restartingService, writeToConsole } from "./killedService.ts"

const list = (api: Service): Effect.Effect<ReadonlyArray<ListedServer>, never> =>
  Effect.orDie(
    Effect.map(
      expectStatus(api, 200, "GET", "/api/servers?include=status,limits"),
      (answer): ReadonlyArray<ListedServer> => answer.json
    )
  )

/** Returns the servers that have not the state of their last response, with why those that are gone were deleted. */
const unsettledOf = Effect.fnUntraced(function* (
  api: Service,
  listed: ReadonlyArray<ListedServer>,
  promised: ReadonlyArray<Promised>
) {
  const status = new Map(listed.map((server) => [server.id, server.status]))
  const unsettled = promised.filter(({ expected, id, save }) => {
    const now = status.get(id)
    if (expected === "up") return now !== "running"
    if (expected === "down") return save ? now !== "offline" : now !== "offline" && now !== undefined
    if (expected === "gone") return now !== undefined
    return now !== undefined && now !== "running" && now !== "offline"
  })
  return yield* Effect.forEach(unsettled, ({ expected, history, id }) =>
    Effect.map(
      api.request("GET", `/api/servers/${id}`),
      ({ json }) => `${id} is ${status.get(id) ?? json.detail}, expected ${expected}: ${history.join(", ")}`
    )
  )
})

/** A subscriber that resumes from its last cursor whenever the service restarts. */
const resumingSubscriber = Effect.fnUntraced(function* (
  restarting: RestartingService,
  seen: Array<ServerEvent>
) {
  while (true) {
    const service = yield* restarting.current
    const cursor = seen.at(-1)?.Cursor ?? 0
    const session = Effect.gen(function* () {
      const stream = yield* subscribe(service, `/api/events?cursor=${cursor}`)
      let taken = 0
      const take = Effect.sync(() => {
        const now = stream.events()
        for (; taken < now.length; taken++) seen.push(...now.slice(taken, taken + 1))
        return stream.ended()
      })
      yield* eventually(take, (ended) => ended, "120 seconds")
      yield* take
    })
    // Disconnected before it was subscribed; it tries again after the restart.
    yield* Effect.ignore(Effect.scoped(session))
  }
})

const seed = freshSeed()
/** Fewer on PostgreSQL, whose own failures are tested with the store. */
const total = testDatabase === "sqlite" ? 200 : 100

describe("spec 9.6: control plane killed at any moment", () => {
  it.live(
    `${total} creations, starts, stops and deletions survive kill -9: every acknowledged change is kept, no port is leaked or held twice (MUSTER_TEST_SEED=${seed})`,
    () =>
      Effect.gen(function* () {
        const { dataDir, restarting } = yield* restartingService
        const random = seeded(seed)
        const chaos = makeChaos(restarting, total)
        const seen: Array<ServerEvent> = []
        yield* Effect.forkScoped(resumingSubscriber(restarting, seen))

        const killer = Effect.gen(function* () {
          for (const threshold of [12, 40, 75, 110, 145, 180].filter((some) => some < total - 15)) {
            const enough = threshold + random.below(15)
            yield* eventually(
              Effect.sync(() => chaos.promised.length),
              (count) => count >= enough,
              "60 seconds"
            )
            // Every second start is killed as well, at any point.
            const again = random.below(2) === 0
            yield* restarting.killAndRestart(again ? { duringStart: 250 + random.below(750) } : {})
          }
        })
        const clients = Effect.forEach(
          Array.from({ length: 8 }, (_, index) => index),
          (index) => chaos.client(`client-${seed}-${index}`, seeded(seed + 1 + index)),
          { concurrency: "unbounded", discard: true }
        )
        yield* Effect.all([clients, killer], { concurrency: "unbounded", discard: true })

        const api = yield* restarting.current
        yield* eventually(
          Effect.flatMap(list(api), (listed) => unsettledOf(api, listed, chaos.promised)),
          (unsettled) => unsettled.length === 0,
          "90 seconds"
        )
        yield* eventually(
          Effect.map(list(api), (listed) => processProblems(listed, serverProcesses(dataDir))),
          (problems) => problems.length === 0
        )

        assert.deepStrictEqual(chaos.surprises, [])
        const listed = yield* list(api)
        const { integrity, journal, newest, newestEvent, ports, records } = yield* readDatabase(dataDir)
        assert.deepStrictEqual(integrity, [{ integrity_check: "ok" }])

        // Every 202 is accounted for, and no other server exists.
        const promisedOf = (server: string) =>
          chaos.promised.find(({ id }) => id === server)?.history.join(", ")
        const promisedIds = new Set(chaos.promised.map(({ id }) => id))
        assert.strictEqual(promisedIds.size, chaos.promised.length)
        assert.strictEqual(promisedIds.size, total)
        const deleted = new Set<string>(
          journal.flatMap(({ change }) => (change.topic === "deleted" ? [change.server_id] : []))
        )
        const listedIds = new Set<string>(listed.map(({ id }) => id))
        for (const server of chaos.promised) {
          assert.notStrictEqual(listedIds.has(server.id), deleted.has(server.id), server.id)
          if (server.deleted === "acknowledged") assert.isTrue(deleted.has(server.id), server.id)
          if (server.deleted === "no" && server.save) assert.isTrue(listedIds.has(server.id), server.id)
        }
        const created = journal.filter(({ change }) => change.topic === "server:created")
        assert.strictEqual(created.length, total, "servers without an acknowledgement")
        assert.sameMembers(
          records.map(({ id }) => id),
          listed.map(({ id }) => id)
        )
        assert.deepStrictEqual(
          records
            .filter(({ install }) => install.phase !== "ready")
            .map(({ id, install }) => ({ id, install })),
          []
        )

        assert.strictEqual(journal.length, newest)
        assert.deepStrictEqual(journalProblems(journal, records), [])
        assert.deepStrictEqual(portProblems(listed, ports, range), [])
        const [node] = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json
        const detail = (yield* expectStatus(api, 200, "GET", `/api/nodes/${node.id}`)).json
        assert.deepInclude(detail, {
          ports_free: range.last - range.first + 1 - ports.length,
          servers: listed.length
        })
        assert.strictEqual(detail.committed.memory_bytes, committedMemory(listed))

        // The service that ends, and the next, kill no server that runs; those that are saved start again.
        const killed = journal.flatMap(({ at, change }) =>
          change.topic === "crash" && change.payload.reason === "signal: killed"
            ? [`${change.server_id} at ${at}: ${promisedOf(change.server_id)}`]
            : []
        )
        assert.deepStrictEqual(killed, [])

        // Subscribers receive exactly the journal, across all restarts.
        const expected: ReadonlyArray<ReadonlyArray<unknown>> = journal.flatMap(({ change, cursor }) =>
          isPublic(change) ? [[cursor, change.topic, change.server_id, change.payload]] : []
        )
        const brief = (events: ReadonlyArray<ServerEvent>): ReadonlyArray<ReadonlyArray<unknown>> =>
          events.map((event) => [event.Cursor, event.Topic, event.Data.server_id, event.Data.payload])
        assert.deepStrictEqual(brief(yield* replay(api, newestEvent)), expected)
        yield* eventually(
          Effect.sync(() => seen.length),
          (count) => count >= expected.length
        )
        assert.deepStrictEqual(brief(seen), expected)

        // A repeated creation returns the server that it created, also if the server is deleted.
        for (const { body, id, idempotencyKey } of chaos.promised.slice(0, 40)) {
          const again = yield* expectStatus(api, 202, "POST", "/api/servers", {
            body,
            headers: { "idempotency-key": idempotencyKey }
          })
          assert.strictEqual(again.json.id, id)
        }
        assert.deepStrictEqual(
          (yield* list(api)).map(({ id }) => id),
          listed.map(({ id }) => id)
        )

        yield* api.kill("SIGTERM")
        assert.deepStrictEqual(serverProcesses(dataDir), [])
      }).pipe(Effect.scoped),
    240_000
  )

  it.live(
    "a server that dies while the service is down is a crash, published once",
    () =>
      Effect.gen(function* () {
        const { dataDir, restarting } = yield* restartingService
        let api = yield* restarting.current
        const exits = yield* running(api, "kept", { run: "manual" })
        const killed = yield* running(api, "kept", { run: "manual" })
        const orphan = yield* running(api, "kept", { run: "manual" })
        const passing = yield* running(api, "passing")
        const signal = (find: typeof mainProcess, id: string) =>
          Effect.map(find(dataDir, id), (found) => {
            assert.isDefined(found)
            if (found !== undefined) process.kill(found.pid, "SIGKILL")
          })
        const left = Effect.sync(() =>
          serverProcesses(dataDir).map(({ command, pid, server }) => `${pid} ${server} ${command}`)
        )
        yield* restarting.killAndRestart({
          meanwhile: Effect.gen(function* () {
            yield* writeToConsole(dataDir, exits, "exit 7")
            yield* signal(mainProcess, killed)
            // Without the shim, the exit of this server is not recorded: it ended with its machine, and is no crash.
            yield* signal(shimProcess, orphan)
            yield* signal(mainProcess, orphan)
            yield* writeToConsole(dataDir, passing, "exit 8")
            yield* Effect.orDie(eventually(left, (processes) => processes.length === 0))
          })
        })
        const up = ["installing", "offline", "starting", "running"]
        const ends = [
          [exits, ["crash exit code 7", "offline"]],
          [killed, ["crash signal: killed", "offline"]],
          [orphan, ["offline"]],
          [passing, ["crash exit code 8", "offline", "deleted"]]
        ] as const
        for (let restarts = 0; restarts < 2; restarts++) {
          api = yield* restarting.current
          const stream = yield* subscribe(api, "/api/events?cursor=0")
          for (const [id, events] of ends) yield* eventsAre(stream, id, [...up, ...events])
          for (const id of [exits, killed, orphan]) yield* becomes(api, id, "offline")
          assert.deepStrictEqual(serverProcesses(dataDir), [])
          yield* restarting.killAndRestart()
        }
        api = yield* restarting.current
        yield* powered(api, killed, "start")
        yield* becomes(api, killed, "running")
      }).pipe(Effect.scoped),
    60_000
  )
})
