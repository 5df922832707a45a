import { readFileSync } from "node:fs"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import { createServer as createTlsServer } from "node:https"
import { createServer as createTcpServer, type Server } from "node:net"
import { resolve } from "node:path"
import { WebSocket, WebSocketServer } from "@effect/platform-node/NodeWS"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Scope, Stream } from "effect"
import { ServerId } from "../../../../src/contract/domain/Id.ts"
import { type DaemonError, DaemonRefused } from "../../../../src/contract/nodeApi/Daemon.ts"
import { eventually } from "../../../support/eventually.ts"
import { freePort } from "../../../support/nodes.ts"
import { definition, systemInfo } from "../../../support/samples.ts"
import { FakeDaemon } from "../../servers/support/FakeDaemon.ts"
import { NODE, remote, serve, spec } from "../support/remoteDaemon.ts"

/** A server with configured responses that counts its requests. */
const stub = (answer: (request: IncomingMessage, response: ServerResponse, call: number) => void) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly url: string; readonly calls: () => number }>((resume) => {
      let calls = 0
      const server = createServer((request, response) => {
        request.resume()
        calls += 1
        answer(request, response, calls)
      })
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        const port = typeof address === "object" && address !== null ? address.port : 0
        resume(
          Effect.succeed({
            url: `http://127.0.0.1:${port}`,
            calls: () => calls,
            close: () => server.closeAllConnections()
          })
        )
      })
    }),
    (made) => Effect.sync(() => void ("close" in made && (made as { close: () => void }).close()))
  )

/** Listens with another kind of server and returns its port. */
const listening = (make: () => Server) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly port: number; readonly server: Server }>((resume) => {
      const server = make()
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        const port = typeof address === "object" && address !== null ? address.port : 0
        resume(Effect.succeed({ port, server }))
      })
    }),
    ({ server }) => Effect.sync(() => server.close())
  ).pipe(Effect.map(({ port }) => port))

const tlsFolder = resolve(import.meta.dirname, "../../../support/tls")
const pem = { cert: readFileSync(`${tlsFolder}/cert.pem`), key: readFileSync(`${tlsFolder}/key.pem`) }

const ok = (response: ServerResponse, body: unknown) =>
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body))

describe("spec 9.4: Control plane -> daemon", () => {
  it.live("every call reaches the daemon with its arguments, and returns the daemon's response", () =>
    Effect.gen(function* () {
      const fake = new FakeDaemon(NODE)
      const { url } = yield* serve({
        ...fake.daemon,
        power: (...call) => Effect.as(fake.daemon.power(...call), 7)
      })
      const daemon = yield* remote(() => ({ url, token: "secret" }))
      assert.strictEqual((yield* daemon.system).version, systemInfo.version)
      const created = yield* daemon.create(spec("srv_1"))
      assert.strictEqual<string>(created.id, "srv_1")
      assert.deepStrictEqual(fake.instances.get(ServerId.make("srv_1"))?.spec.definition, definition())
      yield* eventually(daemon.status("srv_1"), (status) => status === "offline")
      assert.strictEqual(yield* daemon.power("srv_1", "start", 0), 7)
      assert.strictEqual(yield* daemon.status("srv_1"), "running")
      yield* daemon.commands("srv_1", ["one", "two"])
      assert.strictEqual((yield* daemon.stats("srv_1", { update_disk_usage: true })).state, "running")
      assert.deepStrictEqual(yield* daemon.logs("srv_1", { page: 1, per_page: 10 }), {
        items: ["line"],
        total: 1
      })
      assert.deepStrictEqual(yield* daemon.logs("srv_1", { page: 1, per_page: 10, times: true }), {
        items: ["line"],
        total: 1,
        times: [null]
      })
      assert.deepStrictEqual(yield* daemon.installLogs("srv_1", { page: 1, per_page: 10 }), {
        items: ["installed"],
        total: 1
      })
      assert.strictEqual((yield* daemon.install("srv_1")).phase, "ready")
      yield* daemon.reset("srv_1")
      const lines = yield* Effect.scoped(Effect.flatMap(daemon.console("srv_1"), Stream.runCollect))
      assert.deepStrictEqual([...lines], ["line"])
      yield* daemon.remove("srv_1")
      assert.deepStrictEqual([fake.instances.size, fake.lost.size], [0, 0])
      yield* daemon.create(spec("srv_2"))
      yield* eventually(daemon.status("srv_2"), (status) => status === "offline")
      yield* daemon.remove("srv_2", { moved: true })
      assert.deepStrictEqual([fake.instances.size, [...fake.lost.keys()]], [0, ["srv_2"]])
    }).pipe(Effect.scoped)
  )

  it.live("a daemon that has registered elsewhere is called with the newest address and token", () =>
    Effect.gen(function* () {
      const fake = new FakeDaemon(NODE)
      const { url } = yield* serve(fake.daemon)
      let known = "before"
      let calls = 0
      const daemon = yield* remote(
        () => ({ url, token: known }),
        "60000 millis",
        Effect.sync(() => {
          calls += 1
          known = "secret"
        })
      )
      yield* daemon.create(spec("srv_1"))
      assert.strictEqual(calls, 1)
      yield* eventually(daemon.status("srv_1"), (status) => status === "offline")
      known = "before"
      yield* daemon.power("srv_1", "start", 0)
      assert.strictEqual(calls, 2)
      known = "before"
      yield* Effect.scoped(daemon.console("srv_1"))
      assert.strictEqual(calls, 3)
      assert.strictEqual(known, "secret")
    }).pipe(Effect.scoped)
  )

  it.live("no call fails while the token is renewed, and the old token is refused after it", () =>
    Effect.gen(function* () {
      const fake = new FakeDaemon(NODE)
      const { token, url } = yield* serve(fake.daemon)
      let known = "secret"
      const daemon = yield* remote(() => ({ url, token: known }))
      yield* daemon.create(spec("srv_1"))
      yield* eventually(daemon.status("srv_1"), (status) => status === "offline")
      // Stored here; the response to the registration is still on its way.
      known = "next"
      yield* daemon.power("srv_1", "start", 0)
      assert.strictEqual(yield* daemon.status("srv_1"), "running")
      yield* Effect.scoped(daemon.console("srv_1"))
      token.set("next")
      yield* daemon.commands("srv_1", ["hello"])
      yield* Effect.scoped(daemon.console("srv_1"))
      assert.strictEqual(fake.calls.filter((call) => call.startsWith("power")).length, 1)
      assert.isFalse(token.accepts("secret"))
    }).pipe(Effect.scoped)
  )

  it.live("a refusal keeps its status, detail and hint", () =>
    Effect.gen(function* () {
      const fake = new FakeDaemon(NODE)
      let refusal = new DaemonRefused({ status: 404, detail: "", hint: "" })
      const refuse = Effect.suspend(() => Effect.fail(refusal))
      const { url } = yield* serve({
        ...fake.daemon,
        create: () => refuse,
        power: () => refuse,
        status: () => refuse,
        console: () => refuse
      })
      const daemon = yield* remote(() => ({ url, token: "secret" }))
      for (const status of [404, 409, 422, 500] as const) {
        refusal = new DaemonRefused({ status, detail: `detail of ${status}`, hint: `hint of ${status}` })
        const calls: ReadonlyArray<Effect.Effect<unknown, DaemonError>> = [
          daemon.create(spec("srv_1")),
          daemon.power("srv_1", "stop", 3),
          daemon.status("srv_1"),
          ...(status === 404 || status === 409 ? [Effect.scoped(daemon.console("srv_1"))] : [])
        ]
        for (const call of calls) {
          const error = yield* Effect.flip(call)
          assert.deepStrictEqual(error, refusal)
        }
      }
    }).pipe(Effect.scoped)
  )

  it.live("a call retries until the daemon accepts the new token; without acceptance the call fails", () =>
    Effect.gen(function* () {
      const fake = new FakeDaemon(NODE)
      const { token, url } = yield* serve(fake.daemon)
      const daemon = yield* remote(() => ({ url, token: "next" }))
      const waiting = yield* Effect.forkChild(daemon.create(spec("srv_1")))
      yield* Effect.sync(() => fake.calls.length)
      assert.strictEqual(fake.calls.length, 0)
      token.set("next")
      assert.strictEqual((yield* Fiber.join(waiting)).id, "srv_1")
      const stranger = yield* remote(() => ({ url, token: "wrong" }), "1000 millis")
      const error = yield* Effect.flip(stranger.power("srv_1", "start", 0))
      assert.strictEqual(error._tag, "NodeUnreachable")
      const console = yield* Effect.flip(Effect.scoped(stranger.console("srv_1")))
      assert.strictEqual(console._tag, "NodeUnreachable")
      assert.isFalse(fake.calls.some((call) => call.startsWith("power")))
    }).pipe(Effect.scoped)
  )

  it.live("no call is sent while the node is not connected", () =>
    Effect.gen(function* () {
      const server = yield* stub((_, response) => ok(response, { status: "running" }))
      let connected = false
      const daemon = yield* remote(() => (connected ? { url: server.url, token: "t" } : undefined))
      assert.strictEqual((yield* Effect.flip(daemon.status("srv_1")))._tag, "NodeUnreachable")
      assert.strictEqual((yield* Effect.flip(Effect.scoped(daemon.console("srv_1"))))._tag, "NodeUnreachable")
      assert.strictEqual(server.calls(), 0)
      connected = true
      assert.strictEqual(yield* daemon.status("srv_1"), "running")
    }).pipe(Effect.scoped)
  )

  it.live("only idempotent calls are retried", () =>
    Effect.gen(function* () {
      const server = yield* stub((request, response, call) => {
        // The request was read, so it may have been carried out.
        if (call % 2 === 1) request.socket.destroy()
        else if (request.method === "GET") ok(response, { status: "running" })
        else response.end()
      })
      const daemon = yield* remote(() => ({ url: server.url, token: "t" }))
      assert.strictEqual(yield* daemon.status("srv_1"), "running")
      assert.strictEqual(server.calls(), 2)
      yield* daemon.remove("srv_1")
      assert.strictEqual(server.calls(), 4)
      const error = yield* Effect.flip(daemon.power("srv_1", "restart", 0))
      assert.strictEqual(error._tag, "NodeUnreachable")
      assert.strictEqual(server.calls(), 5)
    }).pipe(Effect.scoped)
  )

  it.live(
    "a call to a daemon that does not respond fails at the deadline; after several, calls back off",
    () =>
      Effect.gen(function* () {
        const server = yield* stub(() => {})
        let token = "t"
        const daemon = yield* remote(() => ({ url: server.url, token }), "1000 millis")
        for (let call = 1; call <= 3; call++) {
          assert.strictEqual((yield* Effect.flip(daemon.status("srv_1")))._tag, "NodeUnreachable")
          assert.strictEqual(server.calls(), call)
        }
        // The circuit is open, so no call is sent.
        assert.strictEqual((yield* Effect.flip(daemon.status("srv_1")))._tag, "NodeUnreachable")
        assert.strictEqual(server.calls(), 3)
        // A new registration closes the circuit.
        token = "next"
        assert.strictEqual((yield* Effect.flip(daemon.status("srv_1")))._tag, "NodeUnreachable")
        assert.strictEqual(server.calls(), 4)
      }).pipe(Effect.scoped)
  )

  it.live("a malformed response is a failure of the node, not a defect", () =>
    Effect.gen(function* () {
      let answer: (response: ServerResponse) => void = () => {}
      const server = yield* stub((_, response) => answer(response))
      const daemon = yield* remote(() => ({ url: server.url, token: "t" }))
      const answers: ReadonlyArray<readonly [string, (response: ServerResponse) => void]> = [
        ["DaemonRefused", (response) => ok(response, { status: "dancing" })],
        ["DaemonRefused", (response) => response.writeHead(418).end("teapot")],
        ["NodeUnreachable", (response) => response.writeHead(502).end("<html>")],
        ["NodeUnreachable", (response) => response.writeHead(200, { "content-length": "10" }).end("x")]
      ]
      for (const [tag, next] of answers) {
        answer = next
        const error = yield* Effect.flip(daemon.status("srv_1"))
        assert.strictEqual(error._tag, tag)
        if (error._tag === "DaemonRefused") assert.strictEqual(error.status, 500)
      }
    }).pipe(Effect.scoped)
  )

  it.live("a failure names its cause and the settings to check", () =>
    Effect.gen(function* () {
      const plain = yield* stub((_, response) => ok(response, { status: "running" }))
      const secure = yield* listening(() => createTlsServer(pem, (_, response) => response.end()))
      const ssh = yield* listening(() =>
        createTcpServer((socket) => socket.on("error", () => {}).end("SSH-2.0-OpenSSH_9\r\n"))
      )
      const proxy = yield* stub((_, response) => response.writeHead(502).end("<html>"))
      const silent = yield* stub(() => {})
      const stranger = yield* serve(new FakeDaemon(NODE).daemon)
      const closed = yield* freePort
      const tls = /^TLS fails \(.*\)\. Check the scheme of MUSTER_NODE_URL .*MUSTER_NODE_CA/
      const reasons = [
        [
          `http://127.0.0.1:${closed}`,
          /^ECONNREFUSED\. Check that the daemon runs, MUSTER_NODE_URL of the node, and the firewall$/
        ],
        [plain.url.replace("http", "https"), tls],
        [`https://127.0.0.1:${secure}`, tls],
        [`http://127.0.0.1:${ssh}`, /^the response is not HTTP\. Check MUSTER_NODE_URL/],
        [proxy.url, /^a proxy responds with 502\. Check that the daemon runs, MUSTER_NODE_URL/],
        [silent.url, /^no response within 3 s\. Check that the daemon runs, MUSTER_NODE_URL/],
        [
          stranger.url,
          /^another daemon responds there: it refuses the token of the node's last registration\. Set MUSTER_NODE_URL/
        ]
      ] as const
      const checkReason = Effect.fnUntraced(function* ([url, reason]: (typeof reasons)[number]) {
        const reported: Array<string> = []
        const onUnreachable = Effect.sync(() => void reported.push(url))
        // These two end with the deadline.
        const deadline = [silent.url, stranger.url].includes(url) ? "3000 millis" : "60000 millis"
        const daemon = yield* remote(() => ({ url, token: "wrong" }), deadline, Effect.void, onUnreachable)
        const error = yield* Effect.flip(daemon.system)
        assert.strictEqual(error._tag, "NodeUnreachable", url)
        if (error._tag === "NodeUnreachable") assert.match(error.reason ?? "", reason)
        assert.deepStrictEqual(reported, [url])
      })
      yield* Effect.forEach(reasons, checkReason, { concurrency: "unbounded", discard: true })
    }).pipe(Effect.scoped)
  )

  it.live("a response that arrives one byte at a time ends with the deadline", () =>
    Effect.gen(function* () {
      const slow = yield* stub((_, response) => {
        response.writeHead(200, { "content-type": "application/json" })
        const drip = setInterval(() => response.write(" "), 10)
        response.on("close", () => clearInterval(drip))
      })
      const daemon = yield* remote(() => ({ url: slow.url, token: "secret" }), "300 millis")
      const error = yield* Effect.flip(daemon.system)
      assert.strictEqual(error._tag, "NodeUnreachable")
      if (error._tag === "NodeUnreachable") assert.match(error.reason ?? "", /^no response within 0\.3 s/)
      assert.strictEqual(slow.calls(), 1)
    }).pipe(Effect.scoped)
  )

  it.live("a response over the size limit is refused, and the call is not retried", () =>
    Effect.gen(function* () {
      const large = yield* stub((_, response) => ok(response, "x".repeat(3 * 1024 * 1024)))
      const daemon = yield* remote(() => ({ url: large.url, token: "secret" }))
      const error = yield* Effect.flip(daemon.system)
      assert.strictEqual(error._tag, "DaemonRefused")
      if (error._tag === "DaemonRefused")
        assert.strictEqual(error.detail, "the response of the node is too large")
      assert.strictEqual(large.calls(), 1)
    }).pipe(Effect.scoped)
  )

  it.live(
    "a small response has a limit of 64 KiB; scripts have a larger one, and few are read at a time",
    () =>
      Effect.gen(function* () {
        const CALLS = 20
        const script = "x".repeat(1024 * 1024)
        const report = { phase: "ready", entrypoint: "bash", script, skip_scripts: false }
        const waiting: Array<ServerResponse> = []
        let open = 0
        let most = 0
        const node = yield* stub((request, response, call) => {
          if (request.url?.endsWith("/install") !== true) return ok(response, "x".repeat(65 * 1024))
          open += 1
          most = Math.max(most, open)
          response.on("close", () => {
            open -= 1
          })
          waiting.push(response)
          // One response makes room for the next call; the last ones need no room.
          if (call === CALLS) for (const one of waiting.splice(0)) ok(one, report)
          else if (waiting.length >= 7) ok(waiting.shift() ?? response, report)
        })
        const daemon = yield* remote(() => ({ url: node.url, token: "secret" }))
        const scripts = yield* Effect.forEach(
          Array.from({ length: CALLS }, () => daemon.install("srv_1")),
          Effect.map((answer) => (answer.script ?? "").length),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual([...new Set(scripts)], [script.length])
        assert.isAtMost(most, 7)
        const small: ReadonlyArray<Effect.Effect<unknown, DaemonError>> = [
          daemon.system,
          daemon.status("srv_1"),
          daemon.create(spec("srv_1"))
        ]
        for (const call of small) {
          const error = yield* Effect.flip(call)
          assert.deepInclude(error, {
            _tag: "DaemonRefused",
            detail: "the response of the node is too large"
          })
        }
      }).pipe(Effect.scoped)
  )

  it.live("a daemon has 1,000 open consoles at most; closing one makes room", () =>
    Effect.gen(function* () {
      const { url } = yield* serve({
        ...new FakeDaemon(NODE).daemon,
        console: () => Effect.succeed(Stream.never)
      })
      const daemon = yield* remote(() => ({ url, token: "secret" }))
      const first = yield* Scope.make()
      yield* Scope.provide(daemon.console("srv_1"), first)
      yield* Effect.forEach(Array.from({ length: 999 }), () => daemon.console("srv_1"), { concurrency: 20 })
      const error = yield* Effect.flip(Effect.scoped(daemon.console("srv_1")))
      assert.deepInclude(error, {
        _tag: "DaemonRefused",
        status: 409,
        detail: "the node has 1000 open consoles"
      })
      yield* Scope.close(first, Exit.void)
      yield* eventually(
        Effect.result(Effect.scoped(daemon.console("srv_1"))),
        (result) => result._tag === "Success"
      )
    }).pipe(Effect.scoped)
  )

  it.live("a daemon reads console messages of 64 KiB at most: a longer one closes with 1009", () =>
    Effect.gen(function* () {
      const { url } = yield* serve({
        ...new FakeDaemon(NODE).daemon,
        console: () => Effect.succeed(Stream.never)
      })
      const code = yield* Effect.callback<number>((resume) => {
        const socket = new WebSocket(`${url.replace("http", "ws")}/api/servers/srv_1/console`, {
          headers: { authorization: "Bearer secret" }
        })
        socket.on("error", () => {})
        socket.on("open", () => socket.send("x".repeat(64 * 1024 + 1)))
        socket.on("close", (closed) => resume(Effect.succeed(closed)))
        return Effect.sync(() => socket.terminate())
      })
      assert.strictEqual(code, 1009)
    }).pipe(Effect.scoped)
  )

  it.live("a console without a reader applies back pressure to the node and does not fill memory", () =>
    Effect.gen(function* () {
      const LINES = 4_000
      let sent = 0
      const line = "x".repeat(8 * 1024)
      const port = yield* listening(() => {
        const server = createServer()
        new WebSocketServer({ server }).on("connection", (socket) => {
          const more = (error?: Error | null) => {
            if (error instanceof Error || sent === LINES) return
            sent += 1
            // Sends the next line once the kernel has taken this one.
            socket.send(line, more)
          }
          more()
        })
        return server
      })
      const daemon = yield* remote(() => ({ url: `http://127.0.0.1:${port}`, token: "secret" }))
      yield* Effect.gen(function* () {
        const lines = yield* daemon.console("srv_1")
        // Waits until the kernel buffers are full.
        yield* eventually(
          Effect.suspend(() => {
            const before = sent
            return Effect.as(Effect.sleep("200 millis"), sent - before)
          }),
          (more) => more === 0
        )
        assert.isBelow(sent, LINES)
        const all = yield* Stream.runFold(
          Stream.take(lines, LINES),
          () => 0,
          (count) => count + 1
        )
        assert.strictEqual(all, LINES, "nothing is lost")
      }).pipe(Effect.scoped)
    }).pipe(Effect.scoped)
  )

  it.live("a console ends with the connection, and its end ends the connection", () =>
    Effect.gen(function* () {
      const fake = new FakeDaemon(NODE)
      const closed = yield* Deferred.make<void>()
      const { url } = yield* serve({
        ...fake.daemon,
        console: () =>
          Effect.as(
            Effect.addFinalizer(() => Deferred.succeed(closed, undefined)),
            Stream.concat(Stream.make("first"), Stream.never)
          )
      })
      const daemon = yield* remote(() => ({ url, token: "secret" }))
      const scope = yield* Scope.make()
      const lines = yield* Scope.provide(daemon.console("srv_1"), scope)
      assert.deepStrictEqual([...(yield* Stream.runCollect(Stream.take(lines, 1)))], ["first"])
      yield* Scope.close(scope, Exit.void)
      yield* Deferred.await(closed)
    }).pipe(Effect.scoped)
  )
})
