import { readFileSync } from "node:fs"
import { request } from "node:https"
import { join, resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import WebSocket from "ws"
import { muster } from "../support/command.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { alone, nodeKey, startNode } from "../support/nodes.ts"
import { ServiceFailed, startService } from "../support/Service.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const cert = resolve(import.meta.dirname, "../support/tls/cert.pem")
const key = resolve(import.meta.dirname, "../support/tls/key.pem")

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

/** A request over HTTPS to a service whose certificate only the tests trust. */
const ask = (url: string, token: string, method: string, path: string, body?: unknown) =>
  Effect.callback<{ readonly status: number; readonly text: string }, ServiceFailed>((resume) => {
    const sent = request(
      `${url}${path}`,
      { method, ca: readFileSync(cert), agent: false, headers: { authorization: `Bearer ${token}` } },
      (response) => {
        let text = ""
        response.setEncoding("utf8")
        response.on("data", (chunk: string) => {
          text += chunk
        })
        response.on("end", () => resume(Effect.succeed({ status: response.statusCode ?? 0, text })))
      }
    )
    sent.on("error", (error) => resume(Effect.fail(new ServiceFailed({ message: String(error) }))))
    sent.end(body === undefined ? undefined : JSON.stringify(body))
  })

describe("spec 9: TLS on both sides", () => {
  it.live("control plane and daemon speak HTTPS with certificates of a private authority", () =>
    Effect.gen(function* () {
      const { env } = yield* definitions(files)
      const api = yield* startService({
        env: { ...alone, ...env, MUSTER_TLS_CERT: cert, MUSTER_TLS_KEY: key, MUSTER_NODE_CA: cert }
      })
      assert.match(api.url, /^https:/)
      const call = (method: string, path: string, body?: unknown) => ask(api.url, api.key, method, path, body)
      const { key: node_key } = yield* nodeKey(api)
      const tls = { MUSTER_NODE_TLS_CERT: cert, MUSTER_NODE_TLS_KEY: key, MUSTER_CONTROL_CA: cert }
      const node = yield* startNode({ control: api.url, key: node_key, id: "secret", env: tls })
      assert.match(node.url, /^https:/)
      yield* eventually(call("GET", "/api/nodes/secret"), (answer) =>
        answer.text.includes('"connected":true')
      )
      const created = yield* call("POST", "/api/servers", { blueprint_id: "kept", start: true })
      assert.strictEqual(created.status, 202, created.text)
      const id: string = JSON.parse(created.text).id
      yield* eventually(call("GET", `/api/servers/${id}/status`), (answer) => answer.text.includes("running"))
      const sent = yield* call("POST", `/api/servers/${id}/commands`, { commands: ["hello"] })
      assert.strictEqual(sent.status, 204, sent.text)
      yield* eventually(call("GET", `/api/servers/${id}/logs`), (answer) => answer.text.includes("got hello"))
      const lines: Array<string> = []
      yield* Effect.acquireRelease(
        Effect.sync(() =>
          new WebSocket(`${api.url.replace("http", "ws")}/api/servers/${id}/console`, {
            ca: readFileSync(cert),
            headers: { authorization: `Bearer ${api.key}` }
          })
            .on("open", function () {
              this.send("over the wire")
            })
            .on("message", (data) => lines.push(String(data)))
        ),
        (socket) => Effect.sync(() => socket.terminate())
      )
      yield* eventually(
        Effect.sync(() => lines),
        (seen) => seen.includes("got over the wire")
      )
      assert.strictEqual((yield* ask(node.url, "wrong", "GET", "/api/system")).status, 401)

      // A daemon that does not trust the certificate sends no request.
      const doubting = yield* startNode({
        control: api.url,
        key: node_key,
        id: "doubting",
        env: { MUSTER_LOG_LEVEL: "debug" }
      })
      yield* eventually(Effect.sync(doubting.output), (text) => text.includes("cannot register"))
      assert.strictEqual((yield* call("GET", "/api/nodes/doubting")).status, 404)
    }).pipe(Effect.scoped)
  )
})

describe("spec 9.1: ids of nodes", () => {
  it.live("a daemon cannot register with the id of the embedded node", () =>
    Effect.gen(function* () {
      const api = yield* startService()
      const nodes = yield* eventually(api.request("GET", "/api/nodes"), (answer) => answer.json.length === 1)
      const own = nodes.json[0].id
      const { key: node_key } = yield* nodeKey(api)
      const impostor = yield* startNode({ control: api.url, key: node_key, id: own })
      yield* eventually(Effect.sync(impostor.output), (text) =>
        text.includes(`node ${own} is part of this service`)
      )
      const after = yield* api.request("GET", `/api/nodes/${own}`)
      assert.deepInclude(after.json, { connected: true, url: nodes.json[0].url })
    }).pipe(Effect.scoped)
  )
})

describe("muster node: an invalid setting stops the start with one line", () => {
  const base = { MUSTER_NODE_KEY: "mst_x", MUSTER_NODE_PORT: "0" }
  const cases: ReadonlyArray<readonly [string, Record<string, string>, RegExp]> = [
    ["no key", { MUSTER_NODE_KEY: "" }, /^MUSTER_NODE_KEY is not set: /],
    ["an invalid id", { MUSTER_NODE_ID: "../x" }, /^MUSTER_NODE_ID is "\.\.\/x"; it may be /],
    [
      "an invalid address of the control plane",
      { MUSTER_CONTROL_URL: "muster.example.com" },
      /^MUSTER_CONTROL_URL is /
    ],
    ["a wildcard address", { MUSTER_NODE_HOST: "0.0.0.0" }, /set MUSTER_NODE_URL/],
    [
      "a certificate without a key",
      { MUSTER_NODE_TLS_CERT: cert },
      /^MUSTER_NODE_TLS_CERT is set and MUSTER_NODE_TLS_KEY/
    ],
    [
      "an invalid certificate",
      { MUSTER_NODE_TLS_CERT: key, MUSTER_NODE_TLS_KEY: key },
      /^MUSTER_NODE_TLS_CERT, MUSTER_NODE_TLS_KEY: not usable/
    ],
    ["a missing authority", { MUSTER_CONTROL_CA: "/nowhere/ca.pem" }, /^MUSTER_CONTROL_CA: /],
    ["an address of another host", { MUSTER_NODE_HOST: "203.0.113.7" }, /^cannot listen .*MUSTER_NODE_PORT/]
  ]
  it.live.each(cases)("%s", ([, env, expected]) =>
    Effect.gen(function* () {
      const dataDir = join(yield* temporaryFolder, "data")
      const ended = yield* muster(["node"], { ...base, MUSTER_DATA_DIR: dataDir, ...env })
      assert.notStrictEqual(ended.code, 0)
      const lines = ended.stderr.trim().split("\n")
      assert.strictEqual(lines.length, 1, ended.stderr)
      assert.match(lines[0] ?? "", expected)
    }).pipe(Effect.scoped)
  )
})
