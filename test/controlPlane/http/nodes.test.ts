import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { muster } from "../../support/command.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { create, expectStatus } from "../../support/servers.ts"
import { assertError, keysOf, options, service } from "./support/http.ts"

const node = {
  MUSTER_NODE_NAME: "Node 1",
  MUSTER_NODE_LOCATION: "eu-west",
  MUSTER_NODE_URL: "https://n1.example:5585",
  // The embedded node sends a heartbeat, and so registers again, every 2 s.
  MUSTER_NODE_HEARTBEAT_TIMEOUT: "6"
}
const plain = ["drained", "id", "location", "name", "url"]
const detailed = [
  "capacity",
  "committed",
  "connected",
  "drained",
  "id",
  "last_seen_at",
  "location",
  "name",
  "ports_free",
  "servers",
  "url",
  "usage",
  "version"
]
/** Whether a node has this field depends on the cgroups of the machine. */
const withoutLimits = (json: object) => keysOf(json).filter((name) => name !== "not_enforced")
const amounts = ["cpu_threads", "disk_bytes", "memory_bytes"]

layer(service(node), options)("nodes", (it) => {
  const only = Effect.gen(function* () {
    const api = yield* Muster
    const { json } = yield* expectStatus(api, 200, "GET", "/api/nodes")
    assert.strictEqual(json.length, 1)
    return { api, id: String(json[0].id), listed: json[0] }
  })

  describe("spec 2.1, 2.2: nodes", () => {
    it.effect("the list has exactly the five fields; with ids_only=true it has ids only", () =>
      Effect.gen(function* () {
        const { api, id, listed } = yield* only
        assert.deepStrictEqual(listed, {
          id,
          name: "Node 1",
          location: "eu-west",
          url: "https://n1.example:5585",
          drained: false
        })
        assert.deepStrictEqual((yield* api.request("GET", "/api/nodes?ids_only=true")).json, [id])
        for (const other of ["", "?ids_only=", "?ids_only=false", "?ids_only=TRUE", "?ids_only=1"]) {
          const { json } = yield* expectStatus(api, 200, "GET", `/api/nodes${other}`)
          assert.deepStrictEqual(json, [listed])
        }
      })
    )

    it.effect("one node has exactly the fields of the list and those of spec 2", () =>
      Effect.gen(function* () {
        const { api, id, listed } = yield* only
        const { json } = yield* expectStatus(api, 200, "GET", `/api/nodes/${id}`)
        assert.deepStrictEqual(withoutLimits(json), detailed)
        for (const field of plain) assert.strictEqual(json[field], listed[field])
        assert.strictEqual(json.connected, true)
        assert.match(json.last_seen_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
        assert.match(json.version, /^\d+\.\d+\.\d+/)
        assert.deepStrictEqual(keysOf(json.capacity), amounts)
        assert.deepStrictEqual(keysOf(json.committed), amounts)
        for (const field of amounts) assert.isAbove(json.capacity[field], 0)
      })
    )

    it.effect("a server counts towards its node; a node that owns a server cannot be removed", () =>
      Effect.gen(function* () {
        const { api, id } = yield* only
        const nodeDetail = Effect.map(expectStatus(api, 200, "GET", `/api/nodes/${id}`), ({ json }) => json)
        const before = yield* nodeDetail
        const server = yield* create(api, "kept")
        const after = yield* nodeDetail
        assert.strictEqual(after.servers, before.servers + 1)
        assert.strictEqual(after.ports_free, before.ports_free - 1)
        assert.strictEqual(after.committed.memory_bytes, before.committed.memory_bytes + 64 * 1024 * 1024)
        assertError(yield* api.request("DELETE", `/api/nodes/${id}`), 409)
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${server}?force=true`)
        yield* eventually(
          nodeDetail,
          (now) => now.servers === before.servers && now.ports_free === before.ports_free
        )
      })
    )

    it.effect("the host of a node has the shape of section 2.2 and shows how it makes instances", () =>
      Effect.gen(function* () {
        const { api, id } = yield* only
        const answer = yield* expectStatus(api, 200, "GET", `/api/nodes/${id}/system`)
        const own = yield* expectStatus(api, 200, "GET", "/api/system")
        assert.deepStrictEqual(keysOf(answer.json), ["system", "version"])
        assert.strictEqual(answer.json.version, own.json.version)
        const json = answer.json.system
        const { instance_files, isolation, not_enforced: _, ...host } = json
        assert.deepStrictEqual(keysOf(host), keysOf(own.json.system))
        assert.include(["overlay", "reflink", "copy"], instance_files)
        assert.include(["user+namespaces", "user", "namespaces", "none"], isolation.process)
        assert.strictEqual(json.architecture, own.json.system.architecture)
      })
    )

    it.effect("a drained node gets only the servers that name it", () =>
      Effect.gen(function* () {
        const { api, id } = yield* only
        const drain = (drained: boolean) =>
          expectStatus(api, 200, "PATCH", `/api/nodes/${id}/drained`, { body: { drained } })
        const answer = yield* drain(true)
        assert.deepStrictEqual(withoutLimits(answer.json), detailed)
        assert.strictEqual(answer.json.drained, true)
        assert.strictEqual((yield* only).listed.drained, true)
        assert.include((yield* api.request("GET", "/nodes", { key: null })).text, "drained")
        const refused = yield* api.request("POST", "/api/servers", { body: { blueprint_id: "kept" } })
        assertError(refused, 503, "no nodes available")
        const named = yield* create(api, "kept", { node_id: id })
        assert.strictEqual((yield* drain(true)).json.drained, true)
        assert.strictEqual((yield* drain(false)).json.drained, false)
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${named}?force=true`)
      })
    )

    it.effect(
      "a dry run of a drain changes nothing; the choices of a drain go with move and are bounded",
      () =>
        Effect.gen(function* () {
          const { api, id } = yield* only
          const drain = (body: object, query = "") =>
            api.request("PATCH", `/api/nodes/${id}/drained${query}`, { body })
          const plan = yield* drain({ drained: true, move: true }, "?dry_run=true")
          assert.strictEqual(plan.status, 200, plan.text)
          assert.deepStrictEqual(plan.json, {
            migrations: [],
            migrations_total: 0,
            blocked: [],
            running_out: 0
          })
          assert.strictEqual((yield* only).listed.drained, false)
          assertError(yield* drain({ drained: false }, "?dry_run=true"), 422)
          const move = { drained: true, move: true }
          for (const body of [
            { drained: true, parallel: 2 },
            { ...move, parallel: 0 },
            { ...move, parallel: 51 },
            { ...move, deadline: 0 },
            { ...move, deadline: 604_801 },
            { ...move, notify: "" },
            { ...move, notify: "two\nlines" },
            { ...move, notify_seconds: 1 }
          ])
            assertError(yield* drain(body), 422)
          assert.strictEqual((yield* only).listed.drained, false)
        })
    )

    it.effect("a connected node is removed with force=true only", () =>
      Effect.gen(function* () {
        const { api, id } = yield* only
        const refused = assertError(yield* api.request("DELETE", `/api/nodes/${id}`), 409)
        assert.strictEqual(refused.detail, `node is connected: ${id}`)
        const removed = yield* muster(["nodes", "remove", id, "--yes"], {
          MUSTER_URL: api.url,
          MUSTER_API_KEY: api.key
        })
        assert.strictEqual(removed.code, 2)
        assert.include(removed.stderr, `node is connected: ${id}`)
        const forced = yield* muster(["nodes", "remove", id, "--force", "--yes"], {
          MUSTER_URL: api.url,
          MUSTER_API_KEY: api.key
        })
        assert.strictEqual(forced.code, 0, forced.stderr)
        assert.match(forced.stdout, /^Node .* is removed\.\n$/)
        yield* eventually(
          Effect.map(api.request("GET", `/api/nodes/${id}`), ({ json }) => json?.connected),
          (connected) => connected === true
        )
      })
    )

    it.effect("an unknown node is 404 on every route", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const id of ["nope", "%20", "a%2Fb", "%F0%9F%8E%AE", "__proto__", "constructor"]) {
          const detail = `node not found: ${decodeURIComponent(id)}`
          assertError(yield* api.request("GET", `/api/nodes/${id}`), 404, detail)
          assertError(yield* api.request("GET", `/api/nodes/${id}/system`), 404, detail)
          assertError(yield* api.request("DELETE", `/api/nodes/${id}`), 404, detail)
          const body = { drained: true }
          assertError(yield* api.request("PATCH", `/api/nodes/${id}/drained`, { body }), 404, detail)
        }
      })
    )
  })
})
