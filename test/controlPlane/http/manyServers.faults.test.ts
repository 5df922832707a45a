import { randomBytes } from "node:crypto"
import { assert, layer } from "@effect/vitest"
import { Array as Arr, Effect, Layer } from "effect"
import { type ServerId, serverId } from "../../../src/contract/domain/Id.ts"
import { seedServers } from "../../bench/seed.ts"
import { definitions } from "../../support/definitions.ts"
import { alone, nodeIs, nodeKey } from "../../support/nodes.ts"
import { requestTo, startService } from "../../support/Service.ts"
import { makeSimulatedNode } from "../../support/SimulatedNode.ts"
import { expectStatus } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { assertError, games, options } from "./support/http.ts"

layer(Layer.empty, options)("spec 9.2: register, with thousands of servers", (it) => {
  it.effect(
    "one registration holds 20,000 known and unknown servers; other routes keep their body limit",
    () =>
      Effect.gen(function* () {
        const dataDir = `${yield* temporaryFolder}/data`
        const known = yield* seedServers(dataDir, 10_000, { known: false })
        const { env } = yield* definitions(games)
        const api = yield* startService({ dataDir, env: { ...alone, ...env } })
        const { key } = yield* nodeKey(api, "node-1")
        const unknown = Arr.makeBy(10_000, () => serverId(randomBytes(16)))
        const has = (id: ServerId) => ({
          id,
          status: "offline" as const,
          install: { phase: "ready" as const },
          unsent_reports: 0
        })
        const node = yield* makeSimulatedNode({
          id: "node-1",
          key,
          control: [api.url],
          ports: "1-65535",
          registration: { servers: [...known, ...unknown].map(has) }
        })
        yield* nodeIs(api, "node-1", true)
        const listed = yield* expectStatus(api, 200, "GET", "/api/servers?include=status")
        assert.strictEqual(listed.json.length, 10_000)
        assert.isTrue(listed.json.every(({ status }: { readonly status: string }) => status === "offline"))
        assert.deepStrictEqual(node.deletedServers(), [])
        assert.deepStrictEqual(new Set(node.unknown()), new Set(unknown))
        const large = { boot_id: "x".repeat(1_100_000) }
        assertError(yield* node.post("/internal/heartbeat", large), 413)
      }).pipe(Effect.scoped)
  )
})

layer(Layer.empty, options)("spec 3.13: a rollout, with thousands of servers", (it) => {
  it.effect("more than 10,000 servers are refused, in the plan too; 10,000 are not", () =>
    Effect.gen(function* () {
      const dataDir = `${yield* temporaryFolder}/data`
      const [first] = yield* seedServers(dataDir, 10_001, {
        known: true,
        own: () => ({ blueprint_id: "kept" })
      })
      const { env } = yield* definitions(games)
      const api = yield* startService({ dataDir, env: { ...alone, ...env } })
      const body = { selector: { blueprint_id: "kept" } }
      const many = "the selector matches 10001 servers: a rollout has at most 10000"
      for (const path of ["/api/rollouts", "/api/rollouts?dry_run=true"])
        assertError(yield* api.request("POST", path, { body }), 422, many)
      yield* expectStatus(api, 200, "DELETE", `/api/servers/${first}?force=true`)
      const { json } = yield* expectStatus(api, 201, "POST", "/api/rollouts", { body })
      assert.strictEqual(json.total, 10_000)
    }).pipe(Effect.scoped)
  )
})

layer(Layer.empty, options)("spec 3.6: lists of thousands of servers", (it) => {
  it.effect(
    "are made as they are read: the same for every encoding, filter and key, with the headers of any list",
    () =>
      Effect.gen(function* () {
        const dataDir = `${yield* temporaryFolder}/data`
        const ids = yield* seedServers(dataDir, 6_000, {
          known: true,
          own: (n) => ({ labels: { part: n < 100 ? "first" : "rest" } })
        })
        const { env } = yield* definitions(games)
        const api = yield* startService({ dataDir, env: { ...alone, ...env } })
        const plain = yield* expectStatus(api, 200, "GET", "/api/servers?include=labels", {
          headers: { "accept-encoding": "identity" }
        })
        assert.deepStrictEqual(
          plain.json.map(({ id }: { readonly id: string }) => id),
          ids
        )
        const packed = yield* expectStatus(api, 200, "GET", "/api/servers?include=labels", {
          headers: { "accept-encoding": "gzip" }
        })
        assert.strictEqual(packed.headers.get("content-encoding"), "gzip")
        assert.deepStrictEqual(packed.json, plain.json)
        const etag = plain.headers.get("etag") ?? ""
        assert.match(etag, /^W\/"/)
        assert.isTrue(Number(plain.headers.get("x-muster-cursor")) >= 0)
        const known = { headers: { "if-none-match": etag } }
        yield* expectStatus(api, 304, "GET", "/api/servers?include=labels", known)
        const { json: idsOnly } = yield* expectStatus(api, 200, "GET", "/api/servers?ids_only=true")
        assert.deepStrictEqual(idsOnly, ids)
        const first = ids.slice(0, 100)
        const labelled = yield* expectStatus(api, 200, "GET", "/api/servers?ids_only=true&label=part%3Dfirst")
        assert.deepStrictEqual(labelled.json, first)
        const none = yield* expectStatus(api, 200, "GET", "/api/servers?label=part%3Dnone")
        assert.deepStrictEqual(none.json, [])
        const { json: limited } = yield* expectStatus(api, 201, "POST", "/api/keys", {
          body: { name: "limited", scope: "ReadOnly", labels: { part: "first" } }
        })
        const own = yield* requestTo(api.url, limited.key)("GET", "/api/servers?ids_only=true")
        assert.deepStrictEqual(own.json, first)
      }).pipe(Effect.scoped)
  )
})
