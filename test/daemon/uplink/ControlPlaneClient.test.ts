import { readFileSync } from "node:fs"
import { createServer, type RequestListener, type Server } from "node:http"
import { createServer as createTlsServer } from "node:https"
import { createServer as createTcpServer, type Server as TcpServer } from "node:net"
import { resolve } from "node:path"
import { Readable } from "node:stream"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, Logger, Redacted, References } from "effect"
import { HttpServer } from "effect/http"
import { DaemonHttpLayer } from "../../../src/app/daemonHttp.ts"
import { type ErrorStatus, reasonPhrases } from "../../../src/contract/domain/ApiError.ts"
import { NodeId, ServerId } from "../../../src/contract/domain/Id.ts"
import type { Report } from "../../../src/contract/domain/NodeMessages.ts"
import { ControlPlane } from "../../../src/contract/nodeApi/ControlPlaneApi.ts"
import { ServedDaemon } from "../../../src/daemon/http.ts"
import { ControlPlaneClient, NodeToken } from "../../../src/daemon/uplink/ControlPlaneClient.ts"
import { connectTimeoutClient } from "../../../src/shared/net/connectTimeoutClient.ts"
import { plain } from "../../support/ids.ts"
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
  ControlPlaneClient({ node_id: NodeId.make("n"), url, key: Redacted.make("key"), ...options }).pipe(
    Layer.provideMerge(NodeToken.layer),
    Layer.provide(connectTimeoutClient({ connections: 4 }))
  )

/** Collects log lines above debug level. */
const collectLines =
  (lines: Array<string>) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    effect.pipe(
      Effect.provide(
        Logger.layer([Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${message}`))])
      ),
      Effect.provideService(References.MinimumLogLevel, "Info")
    )

/** Connects a node to an address; returns the log lines above debug level. */
const connection = Effect.fnUntraced(function* (url: string, timeout: `${number} millis` = "2000 millis") {
  const lines: Array<string> = []
  const context = yield* Layer.build(client(url, { deregister: false, timeout }))
  const logged = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    collectLines(lines)(Effect.provideContext(effect, context))
  return { lines, logged }
})

const report: Report = {
  type: "status",
  server_id: ServerId.make("srv_a"),
  sequence: 1,
  status: "running",
  transient: false
}
const beat = { boot_id: "b", load: 0, memory_used_bytes: 0, disk_used_bytes: 0 }

/** Calls every method of the control plane three times; each call must fail. Returns how. */
const callAll = Effect.gen(function* () {
  const plane = plain(yield* ControlPlane)
  const errors: Array<string> = []
  for (let n = 0; n < 3; n++) {
    for (const call of [
      plane.register(registration("n")),
      plane.heartbeat("n", beat),
      Effect.flatMap(plane.reports("n", "b", [report]), ([failure]) =>
        failure === undefined ? Effect.void : Effect.fail(failure)
      )
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
const endless =
  (headers: Record<string, string>): RequestListener =>
  (request, response) => {
    request.resume()
    const chunk = Buffer.alloc(1024 * 1024)
    const source = new Readable({ read: () => void source.push(chunk) })
    source.pipe(response.writeHead(200, { "content-type": "application/json", ...headers }))
  }

/** A control plane that answers a message by its path and body; notes both. */
const reportsTo = Effect.fnUntraced(function* (
  answer: (
    path: string,
    body: { readonly reports?: ReadonlyArray<Report> }
  ) => readonly [status: number, text: string]
) {
  const messages: Array<readonly [path: string, body: unknown]> = []
  const { port } = yield* listening(() =>
    createServer((request, response) => {
      let text = ""
      request.on("data", (piece) => {
        text += piece
      })
      request.on("end", () => {
        const path = (request.url ?? "").replace("/api/nodes/n", "")
        const body = JSON.parse(text)
        messages.push([path, body])
        answering(...answer(path, body), muster)(request, response)
      })
    })
  )
  const { lines, logged } = yield* connection(`http://127.0.0.1:${port}`)
  return {
    lines,
    messages,
    paths: () => messages.map(([path]) => path),
    send: (...reports: ReadonlyArray<Report>) =>
      logged(Effect.flatMap(ControlPlane, (plane) => plane.reports(NodeId.make("n"), "b", reports)))
  }
})

const events = "/internal/events"
const all = [200, JSON.stringify({ failures: [] })] as const
const of = (server_id: string, sequence: number): Report => ({
  ...report,
  server_id: ServerId.make(server_id),
  sequence
})
const tags = (failures: ReadonlyArray<{ readonly _tag: string } | undefined>) =>
  failures.map((failure) => failure?._tag)

describe("spec 9.3", () => {
  const { server_id } = report
  const offline: Report = {
    ...report,
    status: "offline",
    restart: { given_up: true, reason: "why" },
    uses: 7
  }
  const installed: Report = {
    type: "install-status",
    server_id,
    sequence: 2,
    install: { phase: "ready", exit_code: 0 },
    uses: 8
  }

  it.live("reports of several servers are one message, with all their fields", () =>
    Effect.gen(function* () {
      const { messages, send } = yield* reportsTo(() => all)
      const reports = [offline, installed, of("srv_b", 1)]
      assert.deepStrictEqual(yield* send(...reports), [undefined, undefined, undefined])
      assert.deepStrictEqual(messages, [[events, { boot_id: "b", reports }]])
    }).pipe(Effect.scoped)
  )

  it.live("the answer has the failure of each report", () =>
    Effect.gen(function* () {
      const failures = [
        { index: 0, status: 404, detail: "register" },
        { index: 2, status: 503, detail: "later" }
      ]
      const { paths, send } = yield* reportsTo(() => [200, JSON.stringify({ failures })])
      assert.deepStrictEqual(tags(yield* send(of("srv_a", 1), of("srv_b", 1), of("srv_c", 1))), [
        "RegistrationRequired",
        undefined,
        "ControlPlaneUnavailable"
      ])
      assert.deepStrictEqual(paths(), [events])
    }).pipe(Effect.scoped)
  )

  it.live("an unregistered node sends no more than one message", () =>
    Effect.gen(function* () {
      const { lines, paths, send } = yield* reportsTo(() => [404, error(404, "node is not registered: n")])
      const failure = yield* Effect.flip(send(of("srv_a", 1), of("srv_b", 1)))
      assert.strictEqual(failure._tag, "RegistrationRequired")
      assert.deepStrictEqual(paths(), [events])
      assert.deepStrictEqual(lines, [])
    }).pipe(Effect.scoped)
  )

  it.live.each([
    [422, "InvalidRequest"],
    [413, "BodyTooLarge"],
    [500, "InternalError"]
  ] as const)(
    "a message that is refused (%i %s) is sent report by report: only its culprit fails",
    ([status]) =>
      Effect.gen(function* () {
        const isCulprit = ({ sequence, server_id }: Report) => server_id === "srv_a" && sequence === 2
        const alone: Array<Report> = []
        const { send } = yield* reportsTo((_, { reports = [] }) => {
          if (reports.length === 1) alone.push(...reports)
          return reports.some(isCulprit) ? [status, error(status, "why")] : all
        })
        const outcomes = yield* send(of("srv_a", 1), of("srv_a", 2), of("srv_b", 1), of("srv_a", 3))
        const failed = "ControlPlaneUnavailable"
        assert.deepStrictEqual(tags(outcomes), [undefined, failed, undefined, failed])
        assert.deepStrictEqual(
          alone.filter(({ server_id }) => server_id === "srv_a").map(({ sequence }) => sequence),
          [1, 2],
          "no report passes an earlier one"
        )
      }).pipe(Effect.scoped)
  )

  it.live("a message that cannot be stored is not sent report by report", () =>
    Effect.gen(function* () {
      const { paths, send } = yield* reportsTo(() => [503, error(503, "the database is unavailable")])
      const failure = yield* Effect.flip(send(of("srv_a", 1), of("srv_b", 1)))
      assert.strictEqual(failure._tag, "ControlPlaneUnavailable")
      assert.deepStrictEqual(paths(), [events])
    }).pipe(Effect.scoped)
  )
})

describe("spec 2.5: the question for other ports", () => {
  it.live.each([
    ["the control plane does not know the server", 404, "message"],
    ["no port is free", 409, "message"],
    ["the database is unavailable", 503, undefined]
  ] as const)(
    "%s: the daemon knows whether anything can have changed, and stays registered",
    ([, status, refuses]) =>
      Effect.gen(function* () {
        const { port } = yield* listening(() => createServer(answering(status, error(status, "why"), muster)))
        const { lines, logged } = yield* connection(`http://127.0.0.1:${port}`)
        const failure = yield* logged(
          Effect.flatMap(ControlPlane, (plane) =>
            Effect.flip(plain(plane).replacePorts("n", "b", "srv_a", [{ ip: "10.0.0.7", port: 25_565 }]))
          )
        )
        assert.strictEqual(failure._tag, "ControlPlaneUnavailable")
        if (failure._tag !== "ControlPlaneUnavailable") return
        assert.include(failure.detail, "why")
        assert.strictEqual(failure.refuses, refuses)
        assert.deepStrictEqual(lines, [])
      }).pipe(Effect.scoped)
  )
})

describe("spec 9.1: an address that is no control plane is one log line and changes nothing", () => {
  const otherServers: ReadonlyArray<readonly [string, RequestListener, RegExp]> = [
    [
      "a page",
      answering(200, "<html>", { "content-type": "text/html" }),
      /Error .*: status 200, which is no/
    ],
    ["an endless page", endless({}), /Error .*: status 200, which is no/],
    ["an endless response", endless(muster), /Error .*: status 200, which is no/],
    ["an empty 200 for everything", answering(200, ""), /Error .*: status 200, which is no/],
    ["a redirect", answering(301, "", { location: "https://x.example/" }), /status 301 to https:\/\/x\.ex/],
    ["a 403 of another protocol", answering(403, "no"), /Error .*: status 403, which is no/],
    ["a 404 of another protocol", answering(404, "no"), /Error .*: status 404, which is no/],
    ["a proxy without a control plane", answering(502, "<html>"), /Warn .* cannot be reached \(status 502\)/]
  ]
  it.live.each(otherServers)("%s", ([, listener, expected]) =>
    Effect.gen(function* () {
      const { port } = yield* listening(() => createServer(listener))
      const { lines, logged } = yield* connection(`http://127.0.0.1:${port}`)
      assert.deepStrictEqual(new Set(yield* logged(callAll)), new Set(["waits"]))
      assert.strictEqual(lines.length, 1, lines.join("\n"))
      assert.match(lines[0] ?? "", expected)
    }).pipe(Effect.scoped)
  )

  it.live("the daemon of another node: one error; the token stays valid", () =>
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
      assert.deepStrictEqual(new Set(yield* logged(callAll)), new Set(["waits"]))
      assert.deepStrictEqual(lines, [
        `Error ${url}: the address is that of the daemon of a node, not of a control plane: set MUSTER_CONTROL_URL to the control plane's address`
      ])
      assert.isTrue(token.accepts("token"))
    }).pipe(Effect.scoped)
  )

  it.live("a protocol other than HTTP", () =>
    Effect.gen(function* () {
      const { port } = yield* listening(() =>
        createTcpServer((socket) => socket.on("error", () => {}).end("SSH-2.0-OpenSSH_9\r\n"))
      )
      const { lines, logged } = yield* connection(`http://127.0.0.1:${port}`)
      assert.deepStrictEqual(new Set(yield* logged(callAll)), new Set(["waits"]))
      assert.strictEqual(lines.length, 1, lines.join("\n"))
      assert.match(lines[0] ?? "", /the response is not HTTP: check MUSTER_CONTROL_URL/)
    }).pipe(Effect.scoped)
  )

  it.live("an untrusted certificate, and a server without TLS", () =>
    Effect.gen(function* () {
      const secure = yield* listening(() => createTlsServer(pem, answering(200, "", muster)))
      const plain = yield* listening(() => createServer(answering(200, "", muster)))
      for (const { port } of [secure, plain]) {
        const { lines, logged } = yield* connection(`https://127.0.0.1:${port}`)
        assert.deepStrictEqual(new Set(yield* logged(callAll)), new Set(["waits"]))
        assert.strictEqual(lines.length, 1, lines.join("\n"))
        assert.match(lines[0] ?? "", /TLS fails \(.*MUSTER_CONTROL_CA/)
      }
    }).pipe(Effect.scoped)
  )

  it.live("no answer: one line when the control plane is lost, one when it is back", () =>
    Effect.gen(function* () {
      let silent = true
      const { port } = yield* listening(() =>
        createServer((request, response) => {
          if (silent) return
          const isEvents = request.url?.endsWith(events) === true
          answering(200, isEvents ? all[1] : "", muster)(request, response)
        })
      )
      const { lines, logged } = yield* connection(`http://127.0.0.1:${port}`, "250 millis")
      assert.deepStrictEqual(new Set(yield* logged(callAll)), new Set(["waits"]))
      assert.strictEqual(lines.length, 1, lines.join("\n"))
      assert.match(
        lines[0] ?? "",
        /^Warn http.* cannot be reached \(no response in time\): servers keep running, .*: check MUSTER_CONTROL_URL$/
      )
      silent = false
      yield* logged(Effect.flatMap(ControlPlane, (plane) => plane.heartbeat(NodeId.make("n"), beat)))
      yield* logged(Effect.flatMap(ControlPlane, (plane) => plane.reports(NodeId.make("n"), "b", [report])))
      assert.match(lines[1] ?? "", /^Info http.* can be reached again$/)
      silent = true
      yield* Effect.ignore(
        logged(Effect.flatMap(ControlPlane, (plane) => plane.heartbeat(NodeId.make("n"), beat)))
      )
      assert.match(
        lines[2] ?? "",
        /^Warn http.* cannot be reached \(.*\): servers keep running, reports are queued$/
      )
      assert.strictEqual(lines.length, 3)
    }).pipe(Effect.scoped)
  )
})

describe("spec 9.4: the control plane cannot reach the daemon", () => {
  it.live("heartbeats say so: one line when the reason appears, changes or ends", () =>
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
      const heartbeat = logged(
        Effect.flatMap(ControlPlane, (plane) => plane.heartbeat(NodeId.make("n"), beat))
      )
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

describe("spec 9.1: refusals by the control plane", () => {
  it.live("a refused key is logged once, and its token is revoked", () =>
    Effect.gen(function* () {
      for (const status of [401, 403] as const) {
        const refusal = answering(status, error(status, "the API key is not valid"), muster)
        const { port } = yield* listening(() => createServer(refusal))
        const { lines, logged } = yield* connection(`http://127.0.0.1:${port}`)
        const token = yield* logged(NodeToken)
        token.set("token")
        assert.isTrue(token.accepts("token"))
        assert.deepStrictEqual(new Set(yield* logged(callAll)), new Set(["node"]))
        assert.isFalse(token.accepts("token"))
        assert.deepStrictEqual(lines, [
          status === 403
            ? "Error the control plane refuses this node: the API key is not valid (403). Do something."
            : "Error the control plane refuses this node's key: unknown, revoked or expired. Make one with: muster keys create --scope Node --name <name>, set MUSTER_NODE_KEY, start again"
        ])
      }
    }).pipe(Effect.scoped)
  )

  it.live("a key that was accepted before is reported as revoked or expired", () =>
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
      assert.deepStrictEqual(new Set(yield* logged(callAll)), new Set(["node"]))
      assert.strictEqual(lines.length, 2, lines.join("\n"))
      assert.match(lines[1] ?? "", /^Error the control plane refuses this node's key: revoked or expired\. /)
    }).pipe(Effect.scoped)
  )

  it.live("a refused message does not refuse the node; a refused registration is logged once", () =>
    Effect.gen(function* () {
      const { port } = yield* listening(() => createServer(answering(422, error(422, "name: empty"), muster)))
      const { lines, logged } = yield* connection(`http://127.0.0.1:${port}`)
      assert.deepStrictEqual(new Set(yield* logged(callAll)), new Set(["message"]))
      assert.deepStrictEqual(lines, [
        "Error the control plane refuses this node: name: empty (422). Do something."
      ])
    }).pipe(Effect.scoped)
  )

  it.live("503 and 404 refuse nothing: the node retries or registers first", () =>
    Effect.gen(function* () {
      const busy = yield* listening(() => createServer(answering(503, error(503, "no database"), muster)))
      const one = yield* connection(`http://127.0.0.1:${busy.port}`)
      assert.deepStrictEqual(new Set(yield* one.logged(callAll)), new Set(["waits"]))
      assert.strictEqual(one.lines.length, 1)
      assert.match(one.lines[0] ?? "", /^Warn .* is not ready: no database \(503\); reports are queued$/)
      const lost = yield* listening(() => createServer(answering(404, error(404, "not registered"), muster)))
      const two = yield* connection(`http://127.0.0.1:${lost.port}`)
      assert.include(yield* two.logged(callAll), "RegistrationRequired")
    }).pipe(Effect.scoped)
  )
})

describe("spec 9.1: deregistration", () => {
  const disconnectPath = /\/disconnect\b/
  /** Returns the log lines that follow a registration when the deregistration gets this answer. */
  const logOfDeregistration = Effect.fnUntraced(function* (answer: RequestListener) {
    const { port } = yield* listening(() =>
      createServer((request, response) =>
        disconnectPath.test(request.url ?? "")
          ? answer(request, response)
          : answering(200, JSON.stringify({ token: "t", delete: [] }), muster)(request, response)
      )
    )
    const url = `http://127.0.0.1:${port}`
    const lines: Array<string> = []
    yield* Effect.flatMap(ControlPlane, (plane) => plane.register(registration("n"))).pipe(
      Effect.provide(client(url, { deregister: true })),
      collectLines(lines)
    )
    return lines.slice(1).map((line) => line.replace(url, "URL"))
  })

  const rest =
    "the node counts as lost after the MUSTER_NODE_HEARTBEAT_TIMEOUT of the service; queued reports are sent at the next start"
  it.live.each([
    ["200: nothing is logged", answering(200, "", muster), []],
    [
      "503: one warning with the consequence",
      answering(503, error(503, "no database"), muster),
      [`Warn deregistration from URL failed (no database (503)): ${rest}`]
    ],
    [
      "a broken connection: one warning with the consequence",
      (request: { readonly socket: { destroy(): unknown } }) => void request.socket.destroy(),
      [`Warn deregistration from URL failed (ECONNRESET): ${rest}`]
    ],
    [
      "404: one line that no deregistration is needed",
      answering(404, error(404, "not registered"), muster),
      ["Info URL no longer has this registration of the node: no deregistration is needed"]
    ]
  ] as const)("%s", ([, answer, expected]) =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* logOfDeregistration(answer), [...expected])
    }).pipe(Effect.scoped)
  )
})
