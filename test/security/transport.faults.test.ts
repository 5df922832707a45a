import { networkInterfaces } from "node:os"
import { join, resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { type Transport, transportOf } from "../../src/contract/domain/transport.ts"
import { assertError } from "../controlPlane/http/support/http.ts"
import { cells, muster } from "../support/command.ts"
import { eventually } from "../support/eventually.ts"
import { alone, nodeKey, startNode } from "../support/nodes.ts"
import { requestTo, startService } from "../support/Service.ts"
import { registration } from "../support/samples.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const tls = {
  cert: resolve(import.meta.dirname, "../support/tls/cert.pem"),
  key: resolve(import.meta.dirname, "../support/tls/key.pem")
}

/** An external address of this machine. */
const outside = Object.values(networkInterfaces())
  .flatMap((found) => found ?? [])
  .find(({ family, internal }) => family === "IPv4" && !internal)?.address

const says = (of: { readonly output: () => string }, pattern: RegExp) =>
  eventually(Effect.sync(of.output), (text) => pattern.test(text))

describe("transport: classification of node URLs", () => {
  const cases: ReadonlyArray<readonly [string, Transport]> = [
    ["http://127.0.0.1:5585", "local"],
    ["http://127.9.9.9", "local"],
    ["http://2130706433", "local"],
    ["http://[::1]:1", "local"],
    ["http://localhost:5585", "local"],
    ["https://127.0.0.1", "encrypted"],
    ["https://node.example", "encrypted"],
    ["http://10.0.0.7:5585", "plain"],
    ["http://node.example", "plain"],
    ["http://localhost.example", "plain"],
    ["http://127.0.0.1.example", "plain"],
    ["http://127.0.0.1@10.0.0.7", "plain"]
  ]
  it.each(cases)("%s is %s", (url, expected) => assert.strictEqual(transportOf(url), expected))
})

describe.skipIf(outside === undefined)("transport: plain HTTP beyond loopback", () => {
  it.live("plain HTTP beyond loopback is a warning on both sides and is shown in the list of nodes", () =>
    Effect.gen(function* () {
      const host = outside ?? ""
      const api = yield* startService({ env: { ...alone, MUSTER_HOST: host } })
      yield* says(api, new RegExp(`WARN.*listens on ${host} without TLS`))
      const { key } = yield* nodeKey(api)
      const node = yield* startNode({ control: api.url, key, id: "plain", env: { MUSTER_NODE_HOST: host } })
      yield* says(node, new RegExp(`WARN.*the daemon listens on ${host} without TLS`))
      yield* says(node, /WARN.*the control plane is called at http:.* without TLS/)
      yield* says(api, /WARN.*the node is called over plain HTTP, unencrypted.* node_id=plain/)
      yield* startNode({ control: api.url, key: (yield* nodeKey(api, "b")).key, id: "near" })
      yield* eventually(api.request("GET", "/api/nodes"), ({ json }) => json.length === 2)
      const env = { MUSTER_URL: api.url, MUSTER_API_KEY: api.key }
      const { stdout } = yield* muster(["nodes", "list"], env)
      const [, ...rows] = cells(stdout.trim())
      const shown = new Map(rows.map(([id = "", , , state = ""]) => [id, state.includes("plain HTTP")]))
      assert.deepStrictEqual([...shown].toSorted(), [
        ["near", false],
        ["plain", true]
      ])
      const detail = yield* api.request("GET", "/api/nodes/plain")
      assert.isTrue(detail.json.unencrypted)
    }).pipe(Effect.scoped)
  )
})

describe("transport: MUSTER_REQUIRE_TLS", () => {
  const required = { MUSTER_REQUIRE_TLS: "true" }

  it.live("a service and a daemon refuse to listen without TLS beyond loopback", () =>
    Effect.gen(function* () {
      const dataDir = join(yield* temporaryFolder, "data")
      const common = { ...required, MUSTER_DATA_DIR: dataDir, MUSTER_PORT: "0", MUSTER_NODE_PORT: "0" }
      const service = yield* muster(["serve"], { ...common, MUSTER_HOST: "0.0.0.0" })
      assert.match(service.stderr, /without TLS, and MUSTER_REQUIRE_TLS is true: set MUSTER_TLS_CERT/)
      const node = { ...common, MUSTER_NODE_KEY: "mst_x", MUSTER_NODE_URL: "https://node.example" }
      const daemon = yield* muster(["node"], { ...node, MUSTER_NODE_HOST: "0.0.0.0" })
      assert.match(daemon.stderr, /the daemon listens on 0\.0\.0\.0 without TLS, and MUSTER_REQUIRE_TLS/)
      const calling = yield* muster(["node"], { ...node, MUSTER_CONTROL_URL: "http://192.0.2.1:5620" })
      assert.match(calling.stderr, /called at http:\/\/192\.0\.2\.1:5620 without TLS, and MUSTER_REQUIRE_TLS/)
      for (const { code } of [service, daemon, calling]) assert.notStrictEqual(code, 0)
    }).pipe(Effect.scoped)
  )

  it.live("a node with plain HTTP beyond loopback is refused; one with TLS or at loopback is accepted", () =>
    Effect.gen(function* () {
      const api = yield* startService({ env: { ...alone, ...required } })
      const { key } = yield* nodeKey(api)
      const register = requestTo(api.url, key)
      const refused = yield* register("POST", "/api/nodes/far/register", {
        body: registration("far", { url: "http://192.0.2.1:5585" })
      })
      assertError(refused, 422, /^body field url: expected https/)
      assert.strictEqual((yield* api.request("GET", "/api/nodes/far")).status, 404)
      yield* startNode({
        control: api.url,
        key,
        id: "near",
        env: { MUSTER_NODE_TLS_CERT: tls.cert, MUSTER_NODE_TLS_KEY: tls.key }
      })
      const near = yield* eventually(api.request("GET", "/api/nodes/near"), ({ status }) => status === 200)
      assert.notProperty(near.json, "unencrypted")
    }).pipe(Effect.scoped)
  )
})
