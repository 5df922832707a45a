import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { NodeId } from "../../../src/contract/domain/Id.ts"
import { nodeTokens } from "../../support/database.ts"
import { definitions } from "../../support/definitions.ts"
import { eventually } from "../../support/eventually.ts"
import { revokeKey } from "../../support/keys.ts"
import { alone, nodeIs, nodeKey } from "../../support/nodes.ts"
import { requestTo, type Service, startService } from "../../support/Service.ts"
import { makeSimulatedNode } from "../../support/SimulatedNode.ts"
import { statusReport } from "../../support/samples.ts"
import { becomes, create, expectStatus } from "../../support/servers.ts"
import { assertError, games, options } from "./support/http.ts"

/** With the default timeouts, because no test waits for one. */
class Control extends Context.Service<Control, Service>()("test/http/KeysControl") {
  static readonly layer = Layer.effect(
    Control,
    Effect.gen(function* () {
      const { env } = yield* definitions(games)
      return yield* startService({ env: { ...alone, ...env } })
    })
  )
}

let port = 40_000
const simulated = Effect.fnUntraced(function* (api: Service, id: string, key?: string) {
  port += 100
  const own = key ?? (yield* nodeKey(api, id)).key
  const node = yield* makeSimulatedNode({
    id,
    key: own,
    control: [api.url],
    ports: `${port}-${port + 99}`
  })
  yield* nodeIs(api, id, true)
  return node
})

const registrationOf = (node: Effect.Success<ReturnType<typeof simulated>>, id: string) => ({
  ...node.brain.registration,
  id,
  name: id,
  url: node.url(),
  allocations: [],
  boot_id: "another"
})

layer(Control.layer, options)("node keys", (it) => {
  describe("spec 9.1: a node key cannot act for another node", () => {
    it.effect("a key cannot register a node that another key is bound to", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const { key, id: key_id } = yield* nodeKey(api, "owner")
        const owner = yield* simulated(api, "owner", key)
        const thief = yield* nodeKey(api, "thief")
        const steal = () =>
          api.request("POST", "/api/nodes/owner/register", {
            key: thief.key,
            body: registrationOf(owner, "owner")
          })
        assertError(yield* steal(), 403, "node owner is bound to another key")
        // The refused registration has changed nothing: the owner works, and the key can register another node.
        const beat = { boot_id: owner.brain.boot_id, load: 0, memory_used_bytes: 0, disk_used_bytes: 0 }
        assert.strictEqual((yield* owner.post("/internal/heartbeat", beat)).status, 200)
        const calls = ["/internal/heartbeat", "/internal/disconnect"]
        for (const path of calls) {
          const answer = yield* api.request("POST", `/api/nodes/owner${path}`, { key: thief.key, body: beat })
          assertError(answer, 403, "no node has registered with the API key")
        }
        assert.strictEqual((yield* api.request("GET", "/api/nodes/owner")).json.connected, true)
        yield* revokeKey(api.dataDir, key_id)
        assert.strictEqual((yield* steal()).status, 200)
        assertError(yield* owner.post("/internal/heartbeat", beat), 401)
      })
    )

    it.effect("after a node is removed, any key can register its id", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const first = yield* simulated(api, "removed")
        yield* expectStatus(api, 200, "DELETE", "/api/nodes/removed?force=true")
        const beat = { boot_id: "boot-1", load: 0, memory_used_bytes: 0, disk_used_bytes: 0 }
        assertError(yield* first.post("/internal/heartbeat", beat), 404)
        const second = yield* simulated(api, "removed")
        yield* nodeIs(api, "removed", true)
        assertError(yield* first.post("/internal/heartbeat", beat), 403)
        const again = yield* first.post("/register", registrationOf(first, "removed"))
        assertError(again, 403, "node removed is bound to another key")
        assert.strictEqual((yield* second.post("/internal/heartbeat", beat)).status, 200)
        yield* second.kill
      })
    )
  })

  describe("spec 6.1: revoked keys of nodes", () => {
    it.effect(
      "the node of a revoked key is not connected, is not placed on and not called; its servers are unknown",
      () =>
        Effect.gen(function* () {
          const api = yield* Control
          const { key, id: key_id } = yield* nodeKey(api, "revoked")
          const node = yield* simulated(api, "revoked", key)
          const id = yield* create(api, "kept", { node_id: "revoked" })
          yield* becomes(api, id, "offline")
          const token = (yield* nodeTokens(api.dataDir)).get("revoked") ?? ""
          assert.strictEqual((yield* requestTo(node.url(), token)("GET", "/api/servers")).status, 200)

          yield* revokeKey(api.dataDir, key_id)
          // Well before a heartbeat, and long before the heartbeat timeout.
          yield* eventually(
            api.request("GET", "/api/nodes/revoked"),
            (answer) => answer.json.connected === false,
            "3 seconds"
          )
          yield* becomes(api, id, "unknown", "3 seconds")
          const calls = node.brain.calls.length
          const named = yield* api.request("POST", "/api/servers", {
            body: { blueprint_id: "kept", node_id: "revoked" }
          })
          assertError(named, 503, "node is not connected: revoked")
          assert.match(named.json.hint, /^Its key is revoked: make another/)
          for (const [method, path, body] of [
            ["POST", "/power", { action: "start" }],
            ["POST", "/reset", undefined],
            ["GET", "/stats", undefined],
            ["DELETE", "", undefined]
          ] as const) {
            const refused = yield* api.request(
              method,
              `/api/servers/${id}${path}`,
              body === undefined ? {} : { body }
            )
            assertError(refused, 503, "node is not connected: revoked")
            assert.match(refused.json.hint, /^Its key is revoked: make another/)
          }
          assert.strictEqual(node.brain.calls.length, calls)
          const requests = [
            ["/internal/heartbeat", { boot_id: "boot-1", load: 0, memory_used_bytes: 0, disk_used_bytes: 0 }],
            ["/internal/events", { boot_id: "boot-1", reports: [statusReport(id, 99, "running")] }],
            ["/register", registrationOf(node, "revoked")]
          ] as const
          for (const [path, body] of requests) assertError(yield* node.post(path, body), 401)
          assert.strictEqual((yield* api.request("GET", `/api/servers/${id}/status`)).json.status, "unknown")

          // With a new key the node registers again with its servers.
          const { key: fresh } = yield* nodeKey(api, "revoked again")
          yield* node.kill
          const back = yield* simulated(api, "revoked", fresh)
          yield* nodeIs(api, "revoked", true)
          yield* becomes(api, id, "offline")
          yield* back.kill
        })
    )
  })

  describe("spec 9.4: the token of the last registration", () => {
    it.effect("a token goes only to its own node, and a new token invalidates the previous one", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const node = yield* simulated(api, "secretive")
        const first = (yield* nodeTokens(api.dataDir)).get(NodeId.make("secretive")) ?? ""
        const again = yield* node.post("/register", {
          ...registrationOf(node, "secretive"),
          boot_id: node.brain.boot_id
        })
        assert.strictEqual(again.status, 200, again.text)
        const second: string = again.json.token
        assert.notStrictEqual(first, second)
        for (const path of ["/api/nodes", "/api/nodes/secretive", "/nodes", "/metrics", "/openapi.json"]) {
          const shown = yield* expectStatus(api, 200, "GET", path)
          assert.notInclude(shown.text, second)
          assert.notInclude(shown.text, first)
        }
        assert.notInclude(api.output(), second)
      })
    )

    it.effect("a node that has not received the newest token must register again", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const node = yield* simulated(api, "behind")
        // The response is lost: the control plane uses a token that the daemon never gets.
        yield* node.post("/register", {
          ...registrationOf(node, "behind"),
          allocations: [{ address: "127.0.0.1", alias: "", force_outgoing_ip: false, ports: "45000-45009" }],
          runtimes: ["process"],
          boot_id: node.brain.boot_id,
          capacity: { memory_bytes: 1e12, cpu_threads: 4, disk_bytes: 1e12 }
        })
        const id = yield* create(api, "kept", { node_id: "behind" })
        const beat = { boot_id: node.brain.boot_id, load: 0, memory_used_bytes: 0, disk_used_bytes: 0 }
        yield* eventually(node.post("/internal/heartbeat", beat), ({ status }) => status === 404)
        yield* node.kill
        yield* node.restart
        yield* becomes(api, id, "offline")
        yield* node.kill
      })
    )
  })

  describe("spec 2.2: usage of a node", () => {
    it.effect(
      "the usage is that of the last heartbeat, null before the first, on the page of the node and in the metrics",
      () =>
        Effect.gen(function* () {
          const api = yield* Control
          const node = yield* simulated(api, "busy")
          const shown = () => Effect.map(api.request("GET", "/api/nodes/busy"), ({ json }) => json.usage)
          assert.isNull(yield* shown())
          const usage = { boot_id: "boot-1", load: 1.5, memory_used_bytes: 123_456, disk_used_bytes: 654_321 }
          assert.strictEqual((yield* node.post("/internal/heartbeat", usage)).status, 200)
          assert.deepStrictEqual(yield* shown(), { load: 1.5, memory_bytes: 123_456, disk_bytes: 654_321 })
          const metrics = (yield* expectStatus(api, 200, "GET", "/metrics")).text
          assert.match(
            metrics,
            /^muster_node_up\{name="busy",node="busy"\} 1$|^muster_node_up\{node="busy",name="busy"\} 1$/m
          )
          for (const [name, value] of [
            ["drained", "0"],
            ["servers", "0"],
            ["memory_committed_bytes", "0"],
            ["memory_bytes", "\\d+"],
            ["ports_free", "\\d+"]
          ]) {
            assert.match(metrics, new RegExp(`^muster_node_${name}\\{node="busy"\\} ${value}$`, "m"))
          }
          assert.match(metrics, /^muster_node_load\{[^}]*node="busy"[^}]*\} 1\.5$/m)
          assert.match(metrics, /^muster_node_memory_used_bytes\{[^}]*node="busy"[^}]*\} 123456$/m)
          assert.match(metrics, /^muster_node_disk_used_bytes\{[^}]*node="busy"[^}]*\} 654321$/m)
          yield* node.post("/internal/disconnect")
          assert.notInclude((yield* expectStatus(api, 200, "GET", "/metrics")).text, 'node="busy"')
        })
    )
  })
})
