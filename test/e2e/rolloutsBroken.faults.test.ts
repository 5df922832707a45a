import { join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { ServerId } from "../../src/contract/domain/Id.ts"
import type { Rollout } from "../../src/contract/domain/Rollout.ts"
import { seedServers } from "../bench/seed.ts"
import { blueprintFile, definitions, softwareFile, writeFiles } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { makeRestartingService } from "../support/faults/index.ts"
import { alone, connectedNode, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { endLeftovers } from "../support/processes.ts"
import { replicaSet } from "../support/replicaSet.ts"
import { fleetFiles, publish, rollOut, rolloutIs, rolloutOf } from "../support/rollouts.ts"
import { type Service, startService } from "../support/Service.ts"
import { makeSimulatedNode } from "../support/SimulatedNode.ts"
import { becomes, create, expectStatus, logsOf } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

type Api = Pick<Service, "request">

const all = { selector: { blueprint_id: "fleet" }, max_parallel: 3 }

const startAll = (api: Api, count: number) =>
  Effect.gen(function* () {
    const ids = yield* Effect.forEach(
      Array.from({ length: count }),
      () => create(api, "fleet", { start: true }),
      { concurrency: 5 }
    )
    for (const id of ids) yield* becomes(api, id, "running", "60 seconds")
    return ids
  })

const isDone = (count: number) => (rollout: Rollout) => rollout.done >= count

/** Asserts that all servers run with version two, which they began once or, after a kill, a few times. */
const allRunTwo = Effect.fnUntraced(function* (api: Api, ids: ReadonlyArray<string>) {
  for (const id of ids) {
    yield* becomes(api, id, "running")
    const versions = (yield* logsOf(api, id)).filter((line) => line.startsWith("version "))
    assert.deepStrictEqual([...new Set(versions)], ["version one", "version two"], id)
  }
})

describe("spec 3.13: durable", () => {
  it.live(
    "the rollout continues after each kill -9 of the service",
    () =>
      Effect.gen(function* () {
        const folders = yield* definitions(fleetFiles)
        const dataDir = join(yield* temporaryFolder, "data")
        yield* Effect.addFinalizer(() => endLeftovers(dataDir))
        const env = {
          ...folders.env,
          MUSTER_OVERCOMMIT_MEMORY: "1000",
          MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:31300-31399"
        }
        const restarting = yield* makeRestartingService({ dataDir, env })
        let api = yield* restarting.current
        const ids = yield* startAll(api, 12)
        yield* publish({ ...api, folders }, "two")
        const { id } = yield* rollOut(api, all)
        for (const count of [1, 4, 8]) {
          yield* eventually(rolloutOf(api, id), isDone(count), "60 seconds")
          yield* restarting.killAndRestart()
          api = yield* restarting.current
        }
        const done = yield* rolloutIs(api, id, "done", "60 seconds")
        assert.deepStrictEqual([done.done, done.failed], [12, []])
        yield* allRunTwo(api, ids)
      }).pipe(Effect.scoped),
    180_000
  )

  it.live(
    "a kill -9 during the creation leaves no part of a rollout",
    () =>
      Effect.gen(function* () {
        const dataDir = join(yield* temporaryFolder, "data")
        yield* seedServers(dataDir, 3_000, {
          known: false,
          own: (n) => ({ blueprint_id: "fleet", overrides: { env: { NUMBER: String(n) } } })
        })
        const folders = yield* definitions(fleetFiles)
        const restarting = yield* makeRestartingService({ dataDir, env: { ...alone, ...folders.env } })
        const database = yield* Effect.acquireRelease(
          Effect.sync(() => new DatabaseSync(join(dataDir, "muster.db"), { readOnly: true })),
          (open) => Effect.sync(() => open.close())
        )
        const rows = (table: string) =>
          Number(database.prepare(`SELECT COUNT(*) AS n FROM ${table}`).get()?.n)
        const body = { ...all, restart: "when_stopped" }
        yield* Effect.forkScoped(restarting.send("POST", "/api/rollouts", { body }))
        yield* eventually(
          () => rows("rollout_definitions"),
          (n) => n > 0
        )
        assert.strictEqual(rows("rollouts"), 0)
        yield* restarting.killAndRestart()
        const api = yield* restarting.current
        assert.deepStrictEqual((yield* expectStatus(api, 200, "GET", "/api/rollouts")).json, [])
        yield* eventually(
          () => rows("rollout_definitions"),
          (n) => n === 0
        )
        yield* eventually(
          () => rows("rollout_servers"),
          (n) => n === 0
        )
        const created = yield* expectStatus(api, 201, "POST", "/api/rollouts", { body })
        assert.strictEqual(created.json.total, 3_000)
        assert.strictEqual(rows("rollout_servers"), 3_000)
      }).pipe(Effect.scoped),
    90_000
  )

  it.live(
    "the rollout continues after a kill -9 of the daemon",
    () =>
      Effect.gen(function* () {
        const folders = yield* definitions(fleetFiles)
        const api = yield* startService({ env: { ...alone, ...folders.env } })
        const env = { MUSTER_NODE_ALLOCATIONS: "127.0.0.1:31400-31499" }
        const dataDir = join(yield* temporaryFolder, "node")
        yield* Effect.addFinalizer(() => endLeftovers(dataDir))
        const node = yield* connectedNode(api, "n1", { env, dataDir })
        const ids = yield* startAll(api, 9)
        yield* publish({ ...api, folders }, "two")
        const { id } = yield* rollOut(api, all)
        yield* eventually(rolloutOf(api, id), isDone(2), "60 seconds")
        yield* node.kill("SIGKILL")
        yield* startNode({ control: api.url, key: node.key, id: "n1", env, dataDir })
        yield* nodeIs(api, "n1", true)
        const done = yield* rolloutIs(api, id, "done", "60 seconds")
        assert.deepStrictEqual([done.done, done.failed], [9, []])
        yield* allRunTwo(api, ids)
      }).pipe(Effect.scoped),
    180_000
  )

  it.live(
    "replicas: one of two rollouts at once is refused, and another replica continues when the leader is killed",
    () =>
      Effect.gen(function* () {
        const folders = yield* definitions(fleetFiles)
        const set = yield* replicaSet(folders.env)
        const leader = yield* set.start()
        const other = yield* set.start()
        const { key } = yield* set.key("n1", "Node")
        const node = yield* makeSimulatedNode({
          id: "n1",
          key,
          control: [leader.url, other.url],
          ports: "31000-31999",
          heartbeat: "1 second"
        })
        for (const api of [leader, other]) yield* nodeIs(api, "n1", true)
        const ids = yield* startAll(other, 60)
        yield* publish({ ...leader, folders }, "two")
        // Each replica reads the folder by itself.
        const version = "/api/blueprints/fleet"
        yield* eventually(
          expectStatus(other, 200, "GET", version),
          ({ json }) => json.server.version === "two"
        )
        const answers = yield* Effect.all(
          [leader, other, leader, other].map((api) => api.request("POST", "/api/rollouts", { body: all })),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual(answers.map(({ status }) => status).toSorted(), [201, 409, 409, 409])
        const id = answers.find(({ status }) => status === 201)?.json.id
        yield* eventually(rolloutOf(other, id), isDone(5), "60 seconds")
        yield* leader.kill("SIGKILL")
        assert.isBelow((yield* rolloutOf(other, id)).done, ids.length)
        const done = yield* rolloutIs(other, id, "done", "120 seconds")
        assert.deepStrictEqual([done.done, done.failed], [ids.length, []])
        for (const server of ids) yield* becomes(other, server, "running")
        for (const { next, spec } of node.brain.instances.values()) {
          assert.strictEqual((next ?? spec).definition.version, "two")
        }
      }).pipe(Effect.scoped),
    240_000
  )
})

describe("spec 3.13: 2,000 servers", () => {
  it.live(
    "the plan has pages, and all servers get the definition while the API answers",
    () =>
      Effect.gen(function* () {
        const count = 2_000
        const dataDir = join(yield* temporaryFolder, "data")
        const ids = yield* seedServers(dataDir, count, { known: false })
        const blueprint = (version: string) => blueprintFile("survival", "paper", { server: { version } })
        const folders = yield* definitions({
          software: { "paper.yml": softwareFile("paper") },
          blueprints: { "survival.yml": blueprint("1.0") }
        })
        const api = yield* startService({ dataDir, env: { ...alone, ...folders.env } })
        const { key } = yield* nodeKey(api, "node-1")
        const has = (id: ServerId) => ({
          id,
          status: "offline" as const,
          install: { phase: "ready" as const },
          unsent_reports: 0
        })
        yield* makeSimulatedNode({
          id: "node-1",
          key,
          control: [api.url],
          ports: "1-65535",
          registration: { servers: ids.map(has) }
        })
        const offline = Effect.map(
          expectStatus(api, 200, "GET", "/api/servers?status=offline&ids_only=true"),
          ({ json }) => json.length
        )
        yield* eventually(offline, (found) => found === count, "120 seconds")
        yield* writeFiles(folders.blueprints, { "survival.yml": blueprint("2.0") })
        yield* expectStatus(api, 200, "POST", "/api/blueprints/reload")
        const body = { selector: { blueprint_id: "survival" }, max_parallel: 50 }
        const plan = yield* expectStatus(api, 200, "POST", "/api/rollouts?dry_run=true", { body })
        assert.deepStrictEqual([plan.json.total, plan.json.servers.length], [count, 100])
        assert.isNotNull(plan.headers.get("link"))
        const began = performance.now()
        const { id } = yield* rollOut(api, body)
        const created = performance.now()
        const done = yield* rolloutIs(api, id, "done", "300 seconds")
        yield* Effect.logInfo(
          `created in ${Math.round(created - began)} ms, done after ${Math.round(performance.now() - created)} ms`
        )
        assert.deepStrictEqual([done.total, done.done, done.failed_total], [count, count, 0])
        const listed = yield* expectStatus(api, 200, "GET", "/api/servers?include=software")
        assert.isTrue(listed.json.every(({ version }: { readonly version: string }) => version === "2.0"))
        assert.strictEqual(listed.json.length, ids.length)
      }).pipe(Effect.scoped),
    480_000
  )
})
