import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { subscriber } from "../../support/balancer.ts"
import { muster } from "../../support/command.ts"
import { readDatabase, readDatabaseAt } from "../../support/database.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../../support/definitions.ts"
import { eventsAre, subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { during, wallClock, wallClockNote, withWallClock } from "../../support/faults/index.ts"
import { journalProblems } from "../../support/invariants.ts"
import { nodeIs, nodeKey } from "../../support/nodes.ts"
import { freeAllocations } from "../../support/ports.ts"
import { startPostgres } from "../../support/postgres.ts"
import { replicaSet } from "../../support/replicaSet.ts"
import { adminKey, type Service, startService } from "../../support/Service.ts"
import { makeSimulatedNode } from "../../support/SimulatedNode.ts"
import { becomes, create, expectStatus, installed, powered, running } from "../../support/servers.ts"
import { assertSameEvents } from "./load.ts"
import { heartbeatsArrive, nodeChangesIn } from "./nodes.ts"

const HOUR = 3_600_000

/** Ignores SIGTERM, so that only SIGKILL ends it. */
const ignoresSigterm = "trap '' TERM; echo ready; while :; do read -r line || sleep 1; done"
const files = {
  software: {
    "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }),
    "deaf.yml": softwareFile("deaf", { files: { "server.sh": ignoresSigterm } })
  },
  blueprints: { "kept.yml": blueprintFile("kept", "game"), "deaf.yml": blueprintFile("deaf", "deaf") }
}
const up = ["installing", "offline", "starting", "running"]

/** The difference between a service's clock and this machine's, in hours. */
const clockIs = (api: Service, hours: number) =>
  eventually(
    Effect.map(api.request("GET", "/healthz"), ({ headers }) =>
      Math.round((Date.parse(headers.get("date") ?? "") - Date.now()) / HOUR)
    ),
    (now) => now === hours
  )

/** Asserts that a new ticket opens a stream. */
const assertTicketWorks = Effect.fnUntraced(function* (api: Service) {
  const { json } = yield* expectStatus(api, 201, "POST", "/api/events/tickets")
  const stream = yield* subscribe(api, `/api/events?ticket=${json.ticket}`, { key: null })
  assert.isFalse(stream.ended())
})

/** With the scope `AppAdmin`, valid for a day. */
const dayKey = (env: Record<string, string>) =>
  Effect.map(muster(["keys", "create", "--name", "day", "--expires", "1d"], env), ({ stdout }) =>
    stdout.trim()
  )

describe.runIf(withWallClock)(`spec 9.6: a clock is set${wallClockNote}`, () => {
  it.live(
    "the clock of a control plane and its node, set by 2 h in either direction: no node is lost, no key expires",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const clock = yield* wallClock
        const api = yield* startService({
          env: { ...env, ...clock.env, ...(yield* freeAllocations(10)) }
        })
        const key = yield* dayKey({ MUSTER_DATA_DIR: api.dataDir })
        const [embedded] = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json
        const { key: nodes } = yield* nodeKey(api, "n1")
        yield* makeSimulatedNode({
          id: "n1",
          key: nodes,
          control: [api.url],
          ports: "31000-31099",
          heartbeat: "500 millis"
        })
        yield* nodeIs(api, "n1", true)
        const stream = yield* subscribe(api, "/api/events?cursor=0")
        const here = { node_id: embedded.id }
        const works = Effect.gen(function* () {
          yield* expectStatus(api, 200, "GET", "/api/servers", { key })
          yield* assertTicketWorks(api)
          const id = yield* installed(api, "kept", { node_id: "n1" })
          yield* eventsAre(stream, id, ["installing", "offline"])
          yield* heartbeatsArrive(api, "n1", 4)
        })
        for (const hours of [2, -2]) {
          const before = yield* running(api, "kept", here)
          const stubborn = yield* running(api, "deaf", here)
          // The stop timeout runs when the clock is set.
          yield* powered(api, stubborn, "stop", 3)
          yield* during(
            clock.jumped(hours * HOUR),
            Effect.gen(function* () {
              yield* clockIs(api, hours)
              yield* works
              yield* eventsAre(stream, stubborn, [...up, "stopping", "offline"])
              yield* powered(api, before, "restart")
              yield* eventsAre(stream, before, [...up, "stopping", "offline", "starting", "running"])
              const meanwhile = yield* running(api, "deaf", here)
              yield* powered(api, meanwhile, "stop", 1)
              yield* eventsAre(stream, meanwhile, [...up, "stopping", "offline"])
            })
          )
          yield* clockIs(api, 0)
          yield* works
        }
        assert.isFalse(stream.ended())

        const { journal, records } = yield* readDatabase(api.dataDir)
        assert.deepStrictEqual(journalProblems(journal, records), [])
        assert.deepStrictEqual(
          nodeChangesIn(journal).toSorted(),
          [`${embedded.id} connected`, "n1 connected"].toSorted()
        )
      }).pipe(Effect.scoped),
    60_000
  )

  it.live(
    "different clocks of two replicas and PostgreSQL: no node is lost, and both publish the same events",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const [ahead, behind] = [yield* wallClock, yield* wallClock]
        const server = yield* startPostgres({ env: behind.env })
        const set = yield* replicaSet(
          { ...env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "3", MUSTER_NODE_LOST_AFTER: "4" },
          server
        )
        const one = yield* set.start(ahead.env)
        const other = yield* set.start()
        const { key } = yield* set.key("n1", "Node")
        const node = yield* makeSimulatedNode({
          id: "n1",
          key,
          control: [one.url, other.url],
          ports: "31000-31099",
          heartbeat: "500 millis"
        })
        for (const api of [one, other]) yield* nodeIs(api, "n1", true)
        const streams = yield* Effect.forEach([one, other], ({ url }) =>
          subscriber("sse", adminKey, Effect.succeed(url))
        )
        const creations = Effect.forEach([one, other, one, other], (api) =>
          Effect.tap(create(api, "kept"), (id) =>
            Effect.all([becomes(one, id, "offline"), becomes(other, id, "offline")])
          )
        )
        yield* creations
        yield* during(
          ahead.jumped(2 * HOUR),
          during(
            behind.jumped(-2 * HOUR),
            Effect.gen(function* () {
              yield* clockIs(one, 2)
              for (const api of [one, other]) yield* assertTicketWorks(api)
              yield* creations
              // The time comes from this replica, whose clock has not been set.
              yield* heartbeatsArrive(other, "n1", 8)
            })
          )
        )
        yield* clockIs(one, 0)
        yield* creations
        for (const api of [one, other]) {
          yield* assertTicketWorks(api)
          yield* nodeIs(api, "n1", true)
        }
        const { journal, records } = yield* readDatabaseAt(set.url)
        assert.deepStrictEqual(journalProblems(journal, records), [])
        assert.deepStrictEqual(nodeChangesIn(journal), ["n1 connected"])
        assert.strictEqual(node.registrations(), 1)
        yield* assertSameEvents(journal, streams)
      }).pipe(Effect.scoped),
    60_000
  )
})
