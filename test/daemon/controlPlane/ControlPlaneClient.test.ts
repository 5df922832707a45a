import { readFileSync } from "node:fs"
import { createServer, type RequestListener, type Server } from "node:http"
import { createServer as createTlsServer } from "node:https"
import { createServer as createTcpServer, type Server as TcpServer } from "node:net"
import { resolve } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Logger, Redacted, References } from "effect"
import { HttpServer } from "effect/http"
import { ControlPlane } from "../../../src/api/ControlPlane.ts"
import { DaemonHttpLayer } from "../../../src/app/daemonHttp.ts"
import { ControlPlaneClient } from "../../../src/daemon/controlPlane/ControlPlaneClient.ts"
import { NodeToken } from "../../../src/daemon/controlPlane/NodeToken.ts"
import { ServedDaemon } from "../../../src/daemon/controlPlane/ServedDaemon.ts"
import { type ErrorStatus, reasonPhrases } from "../../../src/domain/ApiError.ts"
import type { Report } from "../../../src/domain/NodeMessages.ts"
import { connectTimeoutClient } from "../../../src/nodes/remote/connectTimeoutClient.ts"
import { registration } from "../../support/samples.ts"

const tls = resolve(import.meta.dirname, "../../support/tls")
const pem = { cert: readFileSync(`${tls}/cert.pem`), key: readFileSync(`${tls}/key.pem`) }

const listening = (make: () => Server | TcpServer) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly port: number; readonly close: () => void }>((resume) => {
      const server = make()
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        const close = () => {
          if ("closeAllConnections" in server) server.closeAllConnections()
          server.close()
        }
        resume(
          Effect.succeed({ port: typeof address === "object" && address !== null ? address.port : 0, close })
        )
      })
    }),
    ({ close }) => Effect.sync(close)
  )

const client = (
  url: string,
  options: { readonly deregister: boolean; readonly timeout?: `${number} millis` }
) =>
  ControlPlaneClient({ node_id: "n", url, key: Redacted.make("key"), ...options }).pipe(
    Layer.provideMerge(NodeToken.layer),
    Layer.provide(connectTimeoutClient({ connections: 4 }))
  )

/** Puts the lines above debug level into `lines`. */
const noting =
  (lines: Array<string>) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    effect.pipe(
      Effect.provide(
        Logger.layer([Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${message}`))])
      ),
      Effect.provideService(References.MinimumLogLevel, "Info")
    )

/** A node's connection to an address, and the lines above debug level that it has logged. */
const connection = Effect.fnUntraced(function* (url: string, timeout: `${number} millis` = "2000 millis") {
  const lines: Array<string> = []
  const context = yield* Layer.build(client(url, { deregister: false, timeout }))
  const logged = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    noting(lines)(Effect.provideContext(effect, context))
  return { lines, logged }
})

const report: Report = {
  type: "status",
  server_id: "srv_a",
  sequence: 1,
  status: "running",
  transient: false
}
const beat = { boot_id: "b", load: 0, memory_used_bytes: 0, disk_used_bytes: 0 }

/** A few of everything that a node says; each has to fail, and answers how. */
const tries = Effect.gen(function* () {
  const plane = yield* ControlPlane
  const errors: Array<string> = []
  for (let n = 0; n < 3; n++) {
    for (const call of [
      plane.register(registration("n")),
      plane.heartbeat("n", beat),
      plane.report("n", "b", report)
    ]) {
      const error = yield* Effect.flip(Effect.asVoid(call))
      errors.push(error._tag === "ControlPlaneUnavailable" ? (error.refuses ?? "waits") : error._tag)
    }
  }
  return errors
})

const error = (status: ErrorStatus, detail: string) =>
  JSON.stringify({
    code: String(status),
    status: reasonPhrases[status],
    detail,
    hint: "Do something.",
    request_id: "r"
  })
const answering =
  (status: number, body: string, headers: Record<string, string> = {}): RequestListener =>
  (request, response) => {
    request.resume()
    const type = body === "" ? {} : { "content-type": "application/json" }
    response.writeHead(status, { ...type, ...headers }).end(body)
  }
const muster = { "x-request-id": "r" }

describe("node-protocol: what answers in place of a control plane is told in one line, and hears nothing", () => {
  const strangers: ReadonlyArray<readonly [string, RequestListener, RegExp]> = [
    [
      "a page",
      answering(200, "<html>", { "content-type": "text/html" }),
      /Error .*: answers 200, which is no/
    ],
    ["an empty 200 for everything", answering(200, ""), /Error .*: answers 200, which is no/],
    [
      "a redirection",
      answering(301, "", { location: "https://x.example/" }),
      /answers 301 to https:\/\/x\.ex/
    ],
    ["a refusal that is not the protocol's", answering(403, "no"), /Error .*: answers 403, which is no/],
    ["a 404 that is not the protocol's", answering(404, "no"), /Error .*: answers 404, which is no/],
    ["a proxy without a control plane", answering(502, "<html>"), /Warn .* cannot be reached \(answers 502\)/]
  ]
  it.live.each(strangers)("%s", ([, listener, expected]) =>
    Effect.gen(function* () {
      const { port } = yield* listening(() => createServer(listener))
      const { lines, logged } = yield* connection(`http://127.0.0.1:${port}`)
      assert.deepStrictEqual(new Set(yield* logged(tries)), new Set(["waits"]))
      assert.strictEqual(lines.length, 1, lines.join("\n"))
      assert.match(lines[0] ?? "", expected)
    }).pipe(Effect.scoped)
  )

  it.live("the daemon of another node; the token stays", () =>
    Effect.gen(function* () {
      const context = yield* Layer.build(
        DaemonHttpLayer({ host: "127.0.0.1", port: 0 }).pipe(
          Layer.provide(Layer.mergeAll(NodeToken.layer, ServedDaemon.layer)),
          Layer.provideMerge(NodeServices.layer)
        )
      )
      const { address } = Context.get(context, HttpServer.HttpServer)
      const url = `http://127.0.0.1:${"port" in address ? address.port : 0}`
      const { lines, logged } = yield* connection(url)
      const token = yield* logged(NodeToken)
      token.set("token")
      assert.deepStrictEqual(new Set(yield* logged(tries)), new Set(["waits"]))
      assert.deepStrictEqual(lines, [
        `Error ${url}: the address is that of the daemon of a node, not of a control plane: set MUSTER_CONTROL_URL to the control plane's address`
      ])
      assert.isTrue(token.accepts("token"))
    }).pipe(Effect.scoped)
  )

  it.live("another protocol", () =>
    Effect.gen(function* () {
      const { port } = yield* listening(() =>
        createTcpServer((socket) => socket.on("error", () => {}).end("SSH-2.0-OpenSSH_9\r\n"))
      )
      const { lines, logged } = yield* connection(`http://127.0.0.1:${port}`)
      assert.deepStrictEqual(new Set(yield* logged(tries)), new Set(["waits"]))
      assert.strictEqual(lines.length, 1, lines.join("\n"))
      assert.match(lines[0] ?? "", /the response is not HTTP: check MUSTER_CONTROL_URL/)
    }).pipe(Effect.scoped)
  )

  it.live("a certificate that is not trusted, and no TLS where it is expected", () =>
    Effect.gen(function* () {
      const secure = yield* listening(() => createTlsServer(pem, answering(200, "", muster)))
      const plain = yield* listening(() => createServer(answering(200, "", muster)))
      for (const { port } of [secure, plain]) {
        const { lines, logged } = yield* connection(`https://127.0.0.1:${port}`)
        assert.deepStrictEqual(new Set(yield* logged(tries)), new Set(["waits"]))
        assert.strictEqual(lines.length, 1, lines.join("\n"))
        assert.match(lines[0] ?? "", /TLS fails \(.*MUSTER_CONTROL_CA/)
      }
    }).pipe(Effect.scoped)
  )

  it.live("nobody, or somebody who never answers: away, and back again", () =>
    Effect.gen(function* () {
      let silent = true
      const { port } = yield* listening(() =>
        createServer((request, response) => {
          if (!silent) answering(200, "", muster)(request, response)
        })
      )
      const { lines, logged } = yield* connection(`http://127.0.0.1:${port}`, "50 millis")
      assert.deepStrictEqual(new Set(yield* logged(tries)), new Set(["waits"]))
      assert.strictEqual(lines.length, 1, lines.join("\n"))
      assert.match(
        lines[0] ?? "",
        /^Warn http.* cannot be reached \(no answer in time\): servers keep running, .*: check MUSTER_CONTROL_URL$/
      )
      silent = false
      yield* logged(Effect.flatMap(ControlPlane, (plane) => plane.heartbeat("n", beat)))
      yield* logged(Effect.flatMap(ControlPlane, (plane) => plane.report("n", "b", report)))
      assert.match(lines[1] ?? "", /^Info http.* can be reached again$/)
      silent = true
      yield* Effect.ignore(logged(Effect.flatMap(ControlPlane, (plane) => plane.heartbeat("n", beat))))
      assert.match(
        lines[2] ?? "",
        /^Warn http.* cannot be reached \(.*\): servers keep running, reports are queued$/
      )
      assert.strictEqual(lines.length, 3)
    }).pipe(Effect.scoped)
  )
})

describe("node-protocol: the control plane cannot call the daemon", () => {
  it.live("which a heartbeat is told: a line when that begins, is something else, and ends", () =>
    Effect.gen(function* () {
      let why: string | undefined
      const { port } = yield* listening(() =>
        createServer((request, response) =>
          answering(
            200,
            why === undefined ? "" : JSON.stringify({ unreachable: why }),
            muster
          )(request, response)
        )
      )
      const { lines, logged } = yield* connection(`http://127.0.0.1:${port}`, "10000 millis")
      const heartbeat = logged(Effect.flatMap(ControlPlane, (plane) => plane.heartbeat("n", beat)))
      for (const next of [undefined, "one", "one", "another", undefined, undefined]) {
        why = next
        yield* heartbeat
      }
      const cannot = "Warn the control plane cannot call this node and places no servers on it:"
      assert.deepStrictEqual(lines, [
        `${cannot} one`,
        `${cannot} another`,
        "Info the control plane can call this node and places servers on it"
      ])
    }).pipe(Effect.scoped)
  )
})

describe("node-protocol: what a control plane refuses", () => {
  it.live("the key: said once, and the token that it gave is worth nothing any more", () =>
    Effect.gen(function* () {
      for (const status of [401, 403] as const) {
        const refusal = answering(status, error(status, "the API key is not valid"), muster)
        const { port } = yield* listening(() => createServer(refusal))
        const { lines, logged } = yield* connection(`http://127.0.0.1:${port}`)
        const token = yield* logged(NodeToken)
        token.set("token")
        assert.isTrue(token.accepts("token"))
        assert.deepStrictEqual(new Set(yield* logged(tries)), new Set(["node"]))
        assert.isFalse(token.accepts("token"))
        assert.deepStrictEqual(lines, [
          status === 403
            ? "Error the control plane refuses this node: the API key is not valid (403). Do something."
            : "Error the control plane refuses this node's key: unknown, revoked or expired. Make one with: muster keys create --scope Node --name <name>, set MUSTER_NODE_KEY, start again"
        ])
      }
    }).pipe(Effect.scoped)
  )

  it.live("a key that it has accepted before: it is known by then", () =>
    Effect.gen(function* () {
      let revoked = false
      const { port } = yield* listening(() =>
        createServer((request, response) => {
          const answer = revoked
            ? answering(401, error(401, "the API key is not valid"), muster)
            : answering(200, JSON.stringify({ token: "t", delete: [] }), muster)
          answer(request, response)
        })
      )
      const { lines, logged } = yield* connection(`http://127.0.0.1:${port}`)
      yield* logged(Effect.flatMap(ControlPlane, (plane) => plane.register(registration("n"))))
      revoked = true
      assert.deepStrictEqual(new Set(yield* logged(tries)), new Set(["node"]))
      assert.strictEqual(lines.length, 2, lines.join("\n"))
      assert.match(lines[1] ?? "", /^Error the control plane refuses this node's key: revoked or expired\. /)
    }).pipe(Effect.scoped)
  )

  it.live("a message: it alone is refused; a registration that cannot be is said once", () =>
    Effect.gen(function* () {
      const { port } = yield* listening(() => createServer(answering(422, error(422, "name: empty"), muster)))
      const { lines, logged } = yield* connection(`http://127.0.0.1:${port}`)
      assert.deepStrictEqual(new Set(yield* logged(tries)), new Set(["message"]))
      assert.deepStrictEqual(lines, [
        "Error the control plane refuses this node: name: empty (422). Do something."
      ])
    }).pipe(Effect.scoped)
  )

  it.live("nothing for good: it is busy, or wants a registration first", () =>
    Effect.gen(function* () {
      const busy = yield* listening(() => createServer(answering(503, error(503, "no database"), muster)))
      const one = yield* connection(`http://127.0.0.1:${busy.port}`)
      assert.deepStrictEqual(new Set(yield* one.logged(tries)), new Set(["waits"]))
      assert.strictEqual(one.lines.length, 1)
      assert.match(one.lines[0] ?? "", /^Warn .* is not ready: no database \(503\); reports are queued$/)
      const lost = yield* listening(() => createServer(answering(404, error(404, "not registered"), muster)))
      const two = yield* connection(`http://127.0.0.1:${lost.port}`)
      assert.include(yield* two.logged(tries), "RegistrationRequired")
    }).pipe(Effect.scoped)
  )
})

describe("node-protocol: deregistration", () => {
  const bye = /\/disconnect\b/
  /** What is logged after a registration, when the disconnection is answered so. */
  const farewell = Effect.fnUntraced(function* (answer: RequestListener) {
    const { port } = yield* listening(() =>
      createServer((request, response) =>
        bye.test(request.url ?? "")
          ? answer(request, response)
          : answering(200, JSON.stringify({ token: "t", delete: [] }), muster)(request, response)
      )
    )
    const url = `http://127.0.0.1:${port}`
    const lines: Array<string> = []
    yield* Effect.flatMap(ControlPlane, (plane) => plane.register(registration("n"))).pipe(
      Effect.provide(client(url, { deregister: true })),
      noting(lines)
    )
    return lines.slice(1).map((line) => line.replace(url, "URL"))
  })

  const rest =
    "the node counts as lost after the MUSTER_NODE_HEARTBEAT_TIMEOUT of the service; queued reports are sent at the next start"
  it.live.each([
    ["is heard", answering(200, "", muster), []],
    [
      "is not answered as it should be: what follows of that",
      answering(503, error(503, "no database"), muster),
      [`Warn deregistration from URL failed (no database (503)): ${rest}`]
    ],
    [
      "breaks off: what follows of that",
      (request: { readonly socket: { destroy(): unknown } }) => void request.socket.destroy(),
      [`Warn deregistration from URL failed (ECONNRESET): ${rest}`]
    ],
    [
      "of a node that is not known any more: nothing follows",
      answering(404, error(404, "not registered"), muster),
      ["Info URL no longer has this registration of the node: no deregistration is needed"]
    ]
  ] as const)("%s", ([, answer, expected]) =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* farewell(answer), [...expected])
    }).pipe(Effect.scoped)
  )
})
