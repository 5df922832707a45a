import { readFileSync } from "node:fs"
import { request } from "node:https"
import { join, resolve } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import WebSocket from "ws"
import { muster } from "../support/command.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { alone, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { startService } from "../support/Service.ts"
import { expectStatus, logsHave, running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const tls = resolve(import.meta.dirname, "../support/tls")
const cert = join(tls, "cert.pem")
const key = join(tls, "key.pem")
const client = { cert: join(tls, "client-cert.pem"), key: join(tls, "client-key.pem") }

const daemonTls = {
  MUSTER_NODE_TLS_CERT: cert,
  MUSTER_NODE_TLS_KEY: key,
  MUSTER_NODE_CLIENT_CA: join(tls, "client-ca.pem")
}

/** The result of a request with this certificate, or none: the status, or why there is no response. */
const call = (url: string, certificate?: { readonly cert: string; readonly key: string }) =>
  Effect.callback<string>((resume) => {
    const own =
      certificate === undefined
        ? {}
        : { cert: readFileSync(certificate.cert), key: readFileSync(certificate.key) }
    const sent = request(
      `${url}/api/system`,
      { ca: readFileSync(cert), agent: false, headers: { authorization: "Bearer stolen" }, ...own },
      (response) => {
        response.resume()
        resume(Effect.succeed(String(response.statusCode)))
      }
    )
    sent.on("error", (error) => resume(Effect.succeed("code" in error ? String(error.code) : error.message)))
    sent.end()
  })

describe("mutual TLS: a stolen token alone calls no daemon", () => {
  it.live("a daemon requires a client certificate of its authority; the control plane presents one", () =>
    Effect.gen(function* () {
      const { env } = yield* definitions({
        software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
        blueprints: { "kept.yml": blueprintFile("kept", "game") }
      })
      const api = yield* startService({
        env: {
          ...alone,
          ...env,
          MUSTER_NODE_CA: cert,
          MUSTER_NODE_CLIENT_CERT: client.cert,
          MUSTER_NODE_CLIENT_KEY: client.key
        }
      })
      const { key: node_key } = yield* nodeKey(api)
      const node = yield* startNode({ control: api.url, key: node_key, id: "mutual", env: daemonTls })
      yield* nodeIs(api, "mutual", true)

      // With a certificate of the authority the token is required; without one there is no response.
      assert.strictEqual(yield* call(node.url, client), "401")
      assert.match(yield* call(node.url), /^ERR_SSL_|^ECONNRESET$/)
      assert.match(yield* call(node.url, { cert, key }), /^ERR_SSL_|^ECONNRESET$/)
      const refusals = () =>
        node.output().match(/connections refused: the client certificate is not of/g) ?? []
      yield* eventually(Effect.sync(refusals), (lines) => lines.length === 1)
      assert.match(node.output(), /127\.0\.0\.1/)

      // Every kind of call: requests, and the WebSocket of a console.
      const id = yield* running(api, "kept")
      yield* expectStatus(api, 204, "POST", `/api/servers/${id}/commands`, {
        body: { commands: ["hello you"] }
      })
      yield* logsHave(api, id, "got hello you")
      const lines: Array<string> = []
      yield* Effect.acquireRelease(
        Effect.sync(() =>
          new WebSocket(`${api.url.replace("http", "ws")}/api/servers/${id}/console`, {
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
      // At most one line a minute.
      for (let n = 0; n < 5; n++) yield* call(node.url)
      assert.strictEqual(refusals().length, 1)
    }).pipe(Effect.scoped)
  )

  it.live("a control plane without a valid certificate places nothing on the node and gives the reason", () =>
    Effect.gen(function* () {
      for (const other of [{}, { MUSTER_NODE_CLIENT_CERT: cert, MUSTER_NODE_CLIENT_KEY: key }]) {
        const api = yield* startService({ env: { ...alone, MUSTER_NODE_CA: cert, ...other } })
        const { key: node_key } = yield* nodeKey(api)
        const node = yield* startNode({ control: api.url, key: node_key, id: "mutual", env: daemonTls })
        const seen = yield* eventually(
          api.request("GET", "/api/nodes/mutual"),
          ({ json }) => json?.unreachable?.includes("MUSTER_NODE_CLIENT_CERT") === true
        )
        assert.isFalse(seen.json.connected)
        assert.include(api.output(), "node unreachable")
        assert.include(node.output(), "connections refused: the client certificate")
      }
    }).pipe(Effect.scoped)
  )

  it.live("settings that exclude each other stop the start with one line", () =>
    Effect.gen(function* () {
      const dataDir = join(yield* temporaryFolder, "data")
      const base = { MUSTER_NODE_KEY: "mst_x", MUSTER_NODE_PORT: "0", MUSTER_DATA_DIR: dataDir }
      const plain = yield* muster(["node"], {
        ...base,
        MUSTER_NODE_CLIENT_CA: daemonTls.MUSTER_NODE_CLIENT_CA
      })
      assert.match(plain.stderr, /^MUSTER_NODE_CLIENT_CA is set and MUSTER_NODE_TLS_CERT is not: .*\n$/)
      const none = yield* muster(["node"], { ...base, ...daemonTls, MUSTER_NODE_CLIENT_CA: key })
      assert.match(none.stderr, /^MUSTER_NODE_CLIENT_CA: not usable in PEM .*\n$/)
      const half = yield* muster(["serve"], {
        MUSTER_DATA_DIR: join(dataDir, "service"),
        MUSTER_PORT: "0",
        MUSTER_LOG_LEVEL: "error",
        MUSTER_NODE_CLIENT_CERT: client.cert
      })
      assert.match(
        half.stderr,
        /^MUSTER_NODE_CLIENT_CERT is set and MUSTER_NODE_CLIENT_KEY is not: set both\n$/
      )
    }).pipe(Effect.scoped)
  )
})
