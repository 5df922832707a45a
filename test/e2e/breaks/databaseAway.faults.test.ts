import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { makeBalancer, subscriber } from "../../support/balancer.ts"
import { readDatabaseAt } from "../../support/database.ts"
import { blueprintFile, definitions, softwareFile } from "../../support/definitions.ts"
import { eventually } from "../../support/eventually.ts"
import { during, type Fault, postgresFaults, tcpProxy } from "../../support/faults/index.ts"
import { journalProblems, portProblems } from "../../support/invariants.ts"
import { nodeIs } from "../../support/nodes.ts"
import { startPostgres } from "../../support/postgres.ts"
import { replicaSet } from "../../support/replicaSet.ts"
import { adminKey, type Service } from "../../support/Service.ts"
import { makeSimulatedNode } from "../../support/SimulatedNode.ts"
import { expectStatus } from "../../support/servers.ts"
import {
  assertAnswers,
  assertNothingLost,
  assertSameEvents,
  figures,
  OUTAGE,
  refusedDeletions,
  startLoad
} from "./load.ts"

const files = {
  software: { "game.yml": softwareFile("game") },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}
const range = { address: "127.0.0.1", first: 30_000, last: 49_999 }

/** Two replicas on one PostgreSQL behind a balancer, with a node that reports to both. */
class Setup extends Context.Service<Setup, Effect.Success<typeof makeSetup>>()("test/World") {
  static readonly layer = Layer.effect(
    Setup,
    Effect.suspend(() => makeSetup)
  )
}

const makeSetup = Effect.gen(function* () {
  const { env } = yield* definitions(files)
  const server = yield* startPostgres({ durable: true })
  const proxy = yield* tcpProxy(server.port)
  const set = yield* replicaSet(
    { ...env, MUSTER_DATABASE_TIMEOUT: "650" },
    { url: (database) => proxy.through(server.url(database)) }
  )
  const { key } = yield* set.key("node", "Node")
  const replicas = yield* Effect.all([set.start(), set.start()], { concurrency: 2 })
  const urls = replicas.map(({ url }) => url)
  yield* makeSimulatedNode({ id: "n1", key, control: urls, ports: `${range.first}-${range.last}` })
  for (const api of replicas) yield* nodeIs(api, "n1", true)
  const balancer = yield* makeBalancer(adminKey, () => urls, { failOpen: true })
  return { balancer, faults: { ...postgresFaults(server), unreachable: proxy.swallowed }, replicas, set }
})

const ready = (replicas: ReadonlyArray<Service>, status: number) =>
  eventually(
    Effect.forEach(replicas, (api) => Effect.map(api.request("GET", "/readyz"), (answer) => answer.status), {
      concurrency: "unbounded"
    }),
    (all) => all.every((one) => one === status)
  )

/** Waits for the duration of the outage, in which every replica detects it. */
const outage = (replicas: ReadonlyArray<Service>) =>
  Effect.all([Effect.sleep(`${OUTAGE} seconds`), ready(replicas, 503)], { concurrency: 2, discard: true })

const outages: ReadonlyArray<readonly [string, (faults: Setup["Service"]["faults"]) => Fault]> = [
  ["stopped", ({ stopped }) => stopped],
  ["frozen, with every connection", ({ frozen }) => frozen],
  ["behind a black hole", ({ unreachable }) => unreachable]
]

describe("spec 9.6: database away", () => {
  layer(Setup.layer, { excludeTestServices: true, timeout: "60 seconds" })((it) => {
    for (const [how, faultOf] of outages) {
      it.effect(
        `${how} for ${OUTAGE} s under load (MUSTER_TEST_OUTAGE): reads work from memory, writes are 503 at once, streams stay open, and the service recovers`,
        () =>
          Effect.gen(function* () {
            const { balancer, faults, replicas, set } = yield* Setup
            const before = new Set((yield* readDatabaseAt(set.url)).records.map(({ id }) => id))
            const streams = yield* Effect.forEach(["sse", "websocket"] as const, (kind) =>
              Effect.forEach(replicas, ({ url }) => subscriber(kind, adminKey, Effect.succeed(url)))
            )
            const load = yield* startLoad(balancer, "kept")
            yield* load.creations(20)

            const fault = faultOf(faults)
            const began = performance.now()
            yield* during(fault, outage(replicas))
            const healed = performance.now()
            yield* load.creations(1)
            const recovered = performance.now()
            yield* ready(replicas, 200)
            const allReady = performance.now()
            yield* load.creations(20)
            const answers = yield* load.end

            assertAnswers(answers)
            const refused = answers.filter(({ status }) => status === 503)
            assert.isAbove(refused.length, 0)
            const read = answers.filter(
              (one) => one.what === "read" && one.began > began && one.began < healed
            )
            const since = (moment: number) => `${Math.round(moment - healed)} ms`
            yield* Effect.logInfo(
              `${fault.name} for ${Math.round(healed - began)} ms; writes refused: ${figures(refused)}; reads: ${figures(read)}; a creation ${since(recovered)} after it was back, both replicas ready ${since(allReady)} after it`
            )

            for (const id of refusedDeletions(answers)) {
              yield* eventually(replicas[0].request("DELETE", `/api/servers/${id}`), ({ status }) =>
                [200, 404].includes(status)
              )
            }
            const { journal, ports, records } = yield* eventually(readDatabaseAt(set.url), (now) =>
              now.records.every(({ status }) => status === "offline")
            )
            assert.deepStrictEqual(journalProblems(journal, records), [])
            const there = records.map(({ id }) => id)
            assertNothingLost(
              answers,
              there.filter((id) => !before.has(id))
            )
            yield* assertSameEvents(journal, streams.flat())
            for (const { endings } of streams.flat()) assert.deepStrictEqual(endings(), [])
            for (const api of replicas) {
              const { json } = yield* expectStatus(api, 200, "GET", "/api/servers?include=status,limits")
              assert.sameMembers(
                json.map(({ id }: { readonly id: string }) => id),
                there
              )
              assert.deepStrictEqual(portProblems(json, ports, range), [])
            }
          }),
        (60 + OUTAGE) * 1000
      )
    }
  })
})
