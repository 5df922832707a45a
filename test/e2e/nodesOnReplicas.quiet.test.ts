import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import { ServerId } from "../../src/contract/domain/Id.ts"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { nodeIs } from "../support/nodes.ts"
import { startPostgres } from "../support/postgres.ts"
import { statementsOn } from "../support/postgresDatabase.ts"
import { freshSeed, seeded } from "../support/random.ts"
import { replicaSet } from "../support/replicaSet.ts"
import { type Service, startService } from "../support/Service.ts"
import { makeSimulatedNode } from "../support/SimulatedNode.ts"
import { expectStatus } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const files = {
  software: { "game.yml": softwareFile("game") },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}
const seed = freshSeed()
/** No message is lost, because a node that must register again has been refused. */
const messageFaults = { repeated: 10, reordered: 15, delay: 20 }

interface Listed {
  readonly id: ServerId
  readonly node_id: ServerId
  readonly status: string
}

const listed = (api: Service) =>
  Effect.map(
    expectStatus(api, 200, "GET", "/api/servers?include=status"),
    ({ json }): ReadonlyArray<Listed> => json
  )

describe("design: replicas are equal: reports of nodes", () => {
  it.live(
    `nodes whose messages reach any replica stay connected, are lost once on all replicas, and return (MUSTER_TEST_SEED=${seed})`,
    () =>
      Effect.gen(function* () {
        const random = seeded(seed)
        const { env } = yield* definitions(files)
        const set = yield* replicaSet({ ...env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "3" })
        const replicas = [yield* set.start(), yield* set.start()] as const
        const [one, other] = replicas
        const nodes = yield* Effect.forEach(["n1", "n2", "n3"], (id, index) =>
          Effect.flatMap(set.key(id, "Node"), ({ key }) =>
            makeSimulatedNode({
              id,
              key,
              control: [one.url, other.url],
              ports: `${31_000 + index * 200}-${31_199 + index * 200}`,
              heartbeat: "250 millis",
              random: seeded(seed + index + 1),
              messageFaults
            })
          )
        )
        const [first, second] = nodes
        assert.isDefined(first)
        assert.isDefined(second)
        for (const { id } of nodes) for (const api of replicas) yield* nodeIs(api, id, true)

        const made = yield* Effect.forEach(
          Array.from({ length: 60 }, (_, n) => n),
          (n) =>
            expectStatus(n % 2 === 0 ? one : other, 202, "POST", "/api/servers", {
              body: { blueprint_id: "kept" }
            }),
          { concurrency: 8 }
        )
        const nodeOf = new Map(
          made.map(({ json }) => [ServerId.make(json.id), nodes.find(({ id }) => id === json.node_id)])
        )
        assert.strictEqual(new Set([...nodeOf.values()].map((node) => node?.id)).size, 3, "spread over all")

        /** The status of a server on its node. */
        const statusOnNode = (id: ServerId) => nodeOf.get(id)?.brain.instances.get(id)?.status
        const settled = (apis: ReadonlyArray<Service>) =>
          Effect.forEach(apis, (api) =>
            eventually(
              Effect.map(listed(api), (all) =>
                all.length === nodeOf.size
                  ? all.filter(({ id, status }) => status !== statusOnNode(id))
                  : ["not all"]
              ),
              (wrong) => wrong.length === 0,
              "40 seconds"
            )
          )
        yield* settled(replicas)

        // Reports go to any replica, in any order.
        const act = Effect.sync(() => {
          const [id, node] = [...nodeOf][random.below(nodeOf.size)] ?? [ServerId.make(""), undefined]
          const status = node?.brain.instances.get(id)?.status
          const way =
            status === "offline" ? (["starting", "running"] as const) : (["stopping", "offline"] as const)
          if (status === "offline" || status === "running") {
            for (const next of way) node?.brain.move(id, next, next === "offline")
          }
        })
        yield* Effect.forEach(Array.from({ length: 200 }), () => act, { discard: true })
        yield* settled(replicas)
        assert.deepStrictEqual(
          nodes.map((node) => node.registrations()),
          [1, 1, 1],
          "no registration was refused"
        )
        for (const api of replicas) {
          for (const { id } of nodes) {
            const shown = yield* expectStatus(api, 200, "GET", `/api/nodes/${id}`)
            assert.hasAllKeys(shown.json.usage, ["load", "memory_bytes", "disk_bytes"])
          }
        }

        /**
         * Cuts a node off, waits until both replicas publish its loss once, heals it, and waits until the records are
         * right.
         */
        const cutAndHeal = Effect.fnUntraced(function* (
          node: typeof first,
          apis: ReadonlyArray<Service>,
          losses: number
        ) {
          const mine = [...nodeOf].flatMap(([id, its]) => (its === node ? [id] : []))
          yield* node.cut
          for (const api of apis) {
            yield* nodeIs(api, node.id, false)
            yield* eventually(listed(api), (all) =>
              all.every(({ id, status }) => (status === "unknown") === mine.includes(id))
            )
          }
          yield* node.heal
          for (const api of apis) yield* nodeIs(api, node.id, true)
          yield* settled(apis)
          const [lost, unknown] = yield* statementsOn(
            set.url,
            `SELECT COUNT(*)::int AS count FROM journal WHERE topic = 'node:changed'
              AND payload LIKE '%"lost"%' AND payload LIKE '%"${node.id}"%'`,
            `SELECT server_id, COUNT(*)::int AS count FROM journal
              WHERE topic = 'status' AND payload = '"unknown"' GROUP BY server_id`
          )
          assert.deepStrictEqual(lost, [{ count: losses }])
          const times = new Map(unknown?.map((row) => [row.server_id, row.count]))
          assert.deepStrictEqual(
            mine.map((id) => times.get(id)),
            mine.map(() => losses)
          )
        })
        yield* cutAndHeal(first, replicas, 1)
        yield* cutAndHeal(first, replicas, 2)
        assert.strictEqual(second.registrations(), 1)

        // The leader is killed: the other replica becomes leader, and messages to the killed one are retried.
        yield* one.kill("SIGKILL")
        yield* cutAndHeal(second, [other], 1)
        const more = yield* expectStatus(other, 202, "POST", "/api/servers", {
          body: { blueprint_id: "kept" }
        })
        nodeOf.set(
          more.json.id,
          nodes.find(({ id }) => id === more.json.node_id)
        )
        // A new replica knows the nodes without a registration.
        const before = nodes.map((node) => node.registrations())
        const third = yield* set.start()
        for (const { id } of nodes) yield* nodeIs(third, id, true)
        assert.deepStrictEqual(
          nodes.map((node) => node.registrations()),
          before
        )

        // A frozen replica does no work, and repeats none when it resumes: the other replica has done it.
        const { key } = yield* set.key("n4", "Node")
        const late = yield* makeSimulatedNode({
          id: "n4",
          key,
          control: [third.url],
          ports: "32000-32099",
          heartbeat: "250 millis"
        })
        yield* nodeIs(other, "n4", true)
        yield* Effect.sync(() => other.process.kill("SIGSTOP"))
        yield* late.cut
        yield* nodeIs(third, "n4", false)
        yield* late.heal
        yield* nodeIs(third, "n4", true)
        yield* Effect.sync(() => other.process.kill("SIGCONT"))
        for (const api of [other, third]) yield* nodeIs(api, "n4", true)
        yield* settled([other, third])
        const [lost] = yield* statementsOn(
          set.url,
          `SELECT COUNT(*)::int AS count FROM journal WHERE payload LIKE '%"n4"%' AND payload LIKE '%"lost"%'`
        )
        assert.deepStrictEqual(lost, [{ count: 1 }])
      }).pipe(Effect.scoped),
    240_000
  )

  it.live(
    "spec 6.1: a node whose key is revoked is disconnected at every replica, and returns with another key",
    () =>
      Effect.gen(function* () {
        const set = yield* replicaSet()
        const replicas = [yield* set.start(), yield* set.start()] as const
        const node = (key: string) =>
          makeSimulatedNode({
            id: "n1",
            key,
            control: replicas.map(({ url }) => url),
            ports: "31000-31099",
            heartbeat: "250 millis"
          })
        const first = yield* set.key("first", "Node")
        const scope = yield* Scope.make()
        yield* Scope.provide(node(first.key), scope)
        for (const api of replicas) yield* nodeIs(api, "n1", true)
        yield* set.command("keys", "revoke", first.id)
        for (const api of replicas) yield* nodeIs(api, "n1", false)
        yield* Scope.close(scope, Exit.void)
        const second = yield* set.key("second", "Node")
        yield* node(second.key)
        for (const api of replicas) yield* nodeIs(api, "n1", true)
      }).pipe(Effect.scoped),
    120_000
  )
})

describe("spec 9.6: database away", () => {
  it.live(
    "heartbeats are accepted all the time; no node is lost, and none registers again afterwards",
    () =>
      Effect.gen(function* () {
        const server = yield* startPostgres()
        const set = yield* replicaSet(
          { MUSTER_NODE_HEARTBEAT_TIMEOUT: "3", MUSTER_DATABASE_TIMEOUT: "650" },
          server
        )
        const replicas = [yield* set.start(), yield* set.start()] as const
        const { key } = yield* set.key("n1", "Node")
        const node = yield* makeSimulatedNode({
          id: "n1",
          key,
          control: replicas.map(({ url }) => url),
          ports: "31000-31099",
          heartbeat: "250 millis"
        })
        for (const api of replicas) yield* nodeIs(api, "n1", true)
        const usage = { load: 1, memory_used_bytes: 1, disk_used_bytes: 1 }
        const beatEach = Effect.forEach(replicas, (api) =>
          Effect.map(
            api.request("POST", "/api/nodes/n1/internal/heartbeat", {
              key,
              body: { boot_id: node.brain.boot_id, ...usage }
            }),
            ({ status }) => status
          )
        )
        // Each replica has cached the key before.
        assert.deepStrictEqual(yield* beatEach, [200, 200])
        yield* server.freeze
        yield* eventually(
          Effect.forEach(replicas, (api) =>
            Effect.map(api.request("GET", "/readyz"), ({ status }) => status)
          ),
          (statuses) => statuses.every((status) => status === 503)
        )
        // Longer than the timeout of a silent node.
        for (let n = 0; n < 60; n++) {
          assert.deepStrictEqual(yield* beatEach, [200, 200])
          yield* Effect.sleep("100 millis")
        }
        yield* server.thaw
        yield* eventually(
          Effect.forEach(replicas, (api) =>
            Effect.map(
              api.request("PATCH", "/api/nodes/n1/drained", { body: { drained: true } }),
              ({ status }) => status
            )
          ),
          (statuses) => statuses.every((status) => status === 200)
        )
        // Longer than the timeout again: the replicas have exchanged their heartbeats since.
        const beats = Effect.map(
          statementsOn(set.url, "SELECT beats::int AS beats FROM node_heartbeats"),
          ([rows]) => Number(rows?.[0]?.beats)
        )
        const before = yield* beats
        yield* eventually(beats, (now) => now > before + 20)
        for (const api of replicas) yield* nodeIs(api, "n1", true)
        assert.strictEqual(node.registrations(), 1)
        const [lost] = yield* statementsOn(set.url, `SELECT 1 FROM journal WHERE payload LIKE '%"lost"%'`)
        assert.deepStrictEqual(lost, [])
      }).pipe(Effect.scoped),
    120_000
  )
})

describe("design: the embedded node on PostgreSQL", () => {
  it.live(
    "the embedded node is off by default; if it is on, it returns after a kill -9",
    () =>
      Effect.gen(function* () {
        const set = yield* replicaSet({ MUSTER_EMBEDDED_NODE: "" })
        const api = yield* set.start()
        assert.deepStrictEqual((yield* expectStatus(api, 200, "GET", "/api/nodes")).json, [])
        assert.notInclude(api.output(), "embedded node")
        yield* api.kill("SIGTERM")
        const env = {
          MUSTER_EMBEDDED_NODE: "true",
          MUSTER_DATABASE_URL: set.url,
          MUSTER_DATABASE_TIMEOUT: "5000"
        }
        const dataDir = join(yield* temporaryFolder, "data")
        for (let start = 0; start < 2; start++) {
          const own = yield* startService({ dataDir, env })
          const nodes = (yield* expectStatus(own, 200, "GET", "/api/nodes")).json
          assert.strictEqual(nodes.length, 1)
          // The node is connected once the service listens, by the registration of this start.
          const answer = yield* own.request("GET", `/api/nodes/${nodes[0].id}`)
          assert.isTrue(answer.json.connected)
          yield* own.kill("SIGKILL")
        }
        const [published] = yield* statementsOn(
          set.url,
          `SELECT payload FROM journal WHERE topic = 'node:changed' ORDER BY cursor`
        )
        assert.deepStrictEqual(
          published?.map(({ payload }) => JSON.parse(String(payload)).kind),
          ["connected", "expelled", "connected"]
        )
      }).pipe(Effect.scoped),
    120_000
  )
})
