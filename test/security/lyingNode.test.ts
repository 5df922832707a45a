/** A node with a valid key that attacks the control plane and its callers with its requests and responses. */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import { gzipSync } from "node:zlib"
import { WebSocket, WebSocketServer } from "@effect/platform-node/NodeWS"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { assertError, games, options } from "../controlPlane/http/support/http.ts"
import { definitions } from "../support/definitions.ts"
import { subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { alone, nodeKey } from "../support/nodes.ts"
import { type Answer, type Service, startService } from "../support/Service.ts"
import {
  allocation,
  host,
  installReport,
  registration,
  statusReport,
  systemInfo
} from "../support/samples.ts"
import { becomes, create, expectStatus } from "../support/servers.ts"

const MIB = 1024 * 1024
const hostile = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u
const nasty = "\u001b[2J\u202e\u200b\u2028\u0085\r\n[12:00:00.000] ERROR (#1): forged "
const json = { "content-type": "application/json" }

type Answering = (request: IncomingMessage, response: ServerResponse) => void

/** The responses of a correct node. */
const correctResponse: Answering = (request, response) => {
  let body = ""
  request.setEncoding("utf8")
  request.on("data", (chunk: string) => {
    body += chunk
  })
  request.on("end", () => {
    const answer = (value: unknown) => response.writeHead(200, json).end(JSON.stringify(value))
    const install = { phase: "pending" }
    if (request.url === "/api/system") answer(systemInfo)
    else if (request.method === "POST" && request.url === "/api/servers") {
      answer({ id: JSON.parse(body).id, status: "installing", install, unsent_reports: 0 })
    } else response.end()
  })
}

/** A server whose responses the test changes; returns its address. */
const listening = Effect.acquireRelease(
  Effect.callback<{ readonly url: string; answering: Answering; readonly calls: Array<IncomingMessage> }>(
    (resume) => {
      const made = { url: "", answering: correctResponse, calls: [] as IncomingMessage[], close: () => {} }
      const server = createServer((request, response) => {
        made.calls.push(request)
        if (request.url === "/api/system") correctResponse(request, response)
        else made.answering(request, response)
      })
      const consoles = new WebSocketServer({ server })
      consoles.on("connection", (socket) => {
        socket.on("error", () => {})
        socket.send("first")
        socket.send("x".repeat(MIB))
      })
      made.close = () => {
        consoles.close()
        server.closeAllConnections()
        server.close()
      }
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        made.url = `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`
        resume(Effect.succeed(made))
      })
    }
  ),
  (made) => Effect.sync(() => "close" in made && typeof made.close === "function" && made.close())
)

const lyingRegistration = (url: string, change: Readonly<Record<string, unknown>> = {}) => ({
  ...registration("liar", { url, boot_id: "boot-1", allocations: [allocation({ ports: "29300-29399" })] }),
  ...change
})

/** Sends one report. */
const report = <A>(post: (path: string, body: unknown) => A, report: object): A =>
  post("/internal/events", { boot_id: "boot-1", reports: [report] })

interface LyingNode {
  readonly api: Service
  readonly daemon: Effect.Success<typeof listening>
  readonly register: (
    change: Readonly<Record<string, unknown>>,
    once?: boolean
  ) => ReturnType<Service["request"]>
  /** Registers with a new key: a key registers once a second, and the body is checked before the key. */
  readonly registerWithNewKey: (change: Readonly<Record<string, unknown>>) => ReturnType<Service["request"]>
  readonly post: (path: string, body: unknown) => ReturnType<Service["request"]>
  /** A server that the node reports as running. */
  readonly server: string
}

class LyingNodeService extends Context.Service<LyingNodeService, LyingNode>()("test/security/LyingNode") {
  static readonly layer = Layer.effect(
    LyingNodeService,
    Effect.gen(function* () {
      const { env } = yield* definitions(games)
      const api = yield* startService({ env: { ...alone, ...env, MUSTER_LOG_LEVEL: "debug" } })
      const daemon = yield* listening
      const { key } = yield* nodeKey(api, "liar")
      const post = (path: string, body: unknown, once = false) =>
        api.request("POST", `/api/nodes/liar${path}`, { key, body, once })
      const register: LyingNode["register"] = (change, once) =>
        post("/register", lyingRegistration(daemon.url, change), once)
      const registerWithNewKey: LyingNode["registerWithNewKey"] = (change) =>
        Effect.flatMap(nodeKey(api, "other"), (other) =>
          api.request("POST", "/api/nodes/liar/register", {
            key: other.key,
            body: lyingRegistration(daemon.url, change)
          })
        )
      const registered = yield* register({})
      assert.strictEqual(registered.status, 200, registered.text)
      const server = yield* create(api, "kept")
      yield* post("/internal/events", {
        boot_id: "boot-1",
        reports: [
          installReport(server, 1, { phase: "ready" }),
          statusReport(server, 2, "starting"),
          statusReport(server, 3, "running")
        ]
      })
      yield* becomes(api, server, "running")
      return { api, daemon, register, registerWithNewKey, post, server }
    })
  )
}

/** Asserts that a text is bounded and sanitized. */
const assertClean = (text: string) => {
  assert.isAtMost(text.length, 1024)
  assert.notMatch(text, hostile)
}

layer(LyingNodeService.layer, options)("a lying node", (it) => {
  describe("messages from nodes are bounded and sanitized", () => {
    it.effect("a crash event has bounded, sanitized text and a plausible time", () =>
      Effect.gen(function* () {
        const { api, post, server } = yield* LyingNodeService
        const stream = yield* subscribe(api)
        const crash = { reason: nasty.repeat(10_000), exit_code: 1, timestamp: "9999-12-31T23:59:59.999Z" }
        const answer = yield* report(post, { type: "crash", server_id: server, sequence: 4, crash })
        assert.strictEqual(answer.status, 200, answer.text)
        const text = yield* eventually(Effect.sync(stream.text), (text) => text !== "")
        assert.isBelow(Buffer.byteLength(text), 64 * 1024)
        const { payload } = JSON.parse(text).Data
        assertClean(payload.reason)
        const timestamp: string = payload.timestamp
        assert.match(timestamp, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
        assert.isBelow(Math.abs(Date.parse(timestamp) - Date.now()), 60_000)
      })
    )

    it.effect("the reason of a failed installation is bounded and sanitized; invalid times are omitted", () =>
      Effect.gen(function* () {
        const { api, post, server } = yield* LyingNodeService
        const install = {
          phase: "failed",
          exit_code: 1,
          started_at: nasty,
          finished_at: "2026-01-01T00:00:00Z",
          failure_reason: nasty.repeat(10_000)
        }
        assert.strictEqual((yield* report(post, installReport(server, 5, install))).status, 200)
        const shown = yield* eventually(
          api.request("GET", `/api/servers/${server}/install`),
          (answer) => answer.json?.phase === "failed"
        )
        assertClean(shown.json.failure_reason)
        assert.isUndefined(shown.json.started_at)
        assert.strictEqual(shown.json.finished_at, "2026-01-01T00:00:00.000Z")
        const back = installReport(server, 6, { phase: "ready" })
        assert.strictEqual((yield* report(post, back)).status, 200)
      })
    )

    it.effect("ids, counts and shares that are out of range are 422", () =>
      Effect.gen(function* () {
        const { post, server } = yield* LyingNodeService
        const beat = { boot_id: "boot-1", load: 1, memory_used_bytes: 1, disk_used_bytes: 1 }
        const status = statusReport(server, 7, "running")
        const reported = (report: object) => ({ boot_id: "boot-1", reports: [report] })
        const step = { name: "script", started_at: "2026-01-01T00:00:00Z" }
        const tries: ReadonlyArray<readonly [string, unknown, RegExp]> = [
          [
            "/internal/events",
            reported(installReport(server, 7, { phase: "ready", steps: [step, step] })),
            /steps: Expected at most one step of each name/
          ],
          ["/internal/heartbeat", { ...beat, load: -1 }, /load/],
          ["/internal/heartbeat", { ...beat, memory_used_bytes: -1 }, /memory_used_bytes/],
          ["/internal/heartbeat", { ...beat, disk_used_bytes: 2 ** 60 }, /disk_used_bytes/],
          ["/internal/heartbeat", { ...beat, boot_id: "x".repeat(129) }, /boot_id/],
          ["/internal/events", reported({ ...status, sequence: -1 }), /sequence/],
          ["/internal/events", { ...reported(status), boot_id: nasty }, /boot_id/],
          ["/internal/events", reported({ ...status, server_id: "s".repeat(200) }), /server_id/],
          ["/internal/events", reported({ ...status, server_id: nasty }), /server_id/],
          [
            "/internal/events",
            reported({
              type: "crash",
              server_id: server,
              sequence: 8,
              crash: { reason: "", exit_code: 1e12, timestamp: "" }
            }),
            /exit_code/
          ]
        ]
        for (const [path, body, detail] of tries) assertError(yield* post(path, body), 422, detail)
      })
    )

    it.effect("a node cannot forge a log line", () =>
      Effect.gen(function* () {
        const { api, post, register } = yield* LyingNodeService
        yield* post(`/internal/servers/${encodeURIComponent(nasty)}/ports`, {})
        yield* report(post, { ...statusReport(nasty, 1, "running") })
        yield* register({ url: `http://${nasty}` })
        yield* api.request("GET", `/api/servers/${encodeURIComponent(nasty)}`)
        yield* api.request("GET", `/${encodeURIComponent(nasty)}`, { key: nasty.replace(/[^a-z]/g, "") })
        yield* eventually(Effect.sync(api.output), (output) =>
          /registration refused: .* node_id=liar$/m.test(output)
        )
        for (const line of api.output().split("\n")) {
          assert.notMatch(line, hostile)
          assert.notMatch(line, /^\[12:00:00\.000\]/)
        }
      })
    )
  })

  describe("a registration of a lying node", () => {
    it.effect("a registration with invalid text, addresses or numbers is 422", () =>
      Effect.gen(function* () {
        const { daemon, registerWithNewKey } = yield* LyingNodeService
        const ports = Array.from({ length: 500 }, (_, index) => 20_000 + 2 * index).join(",")
        const allocation = { address: "127.0.0.1", alias: "", force_outgoing_ip: false, ports }
        const tries: ReadonlyArray<readonly [Readonly<Record<string, unknown>>, RegExp]> = [
          [{ url: `${daemon.url}/${"x".repeat(1024)}` }, /^url: /],
          [{ version: "1.0\u202e" }, /^version: /],
          [{ allocations: [allocation] }, /^allocations\[0\]\.ports: expected at most 1024 characters/],
          [{ runtimes: Array(100).fill("process") }, /runtimes/]
        ]
        for (const [change, detail] of tries) assertError(yield* registerWithNewKey(change), 422, detail)
      })
    )

    it.effect("a registration at the metadata service of a cloud is 422 in any notation", () =>
      Effect.gen(function* () {
        const { api, registerWithNewKey } = yield* LyingNodeService
        for (const url of [
          "http://169.254.169.254/",
          "http://[::ffff:a9fe:a9fe]:80",
          "http://[fd00:ec2::254]"
        ]) {
          const body = assertError(
            yield* registerWithNewKey({ url }),
            422,
            /^body field url: nodes may not be at .*(link-local|metadata service)/
          )
          assert.include(body.hint, "MUSTER_NODE_NETWORKS")
        }
        yield* eventually(Effect.sync(api.output), (output) =>
          /WARN .*registration refused: .*169\.254\.169\.254.* node_id=liar$/m.test(output)
        )
      })
    )

    it.effect("a server that is listed many times is reconciled once", () =>
      Effect.gen(function* () {
        const { api, register, server } = yield* LyingNodeService
        const cursor = Effect.map(api.request("GET", "/api/servers"), ({ headers }) =>
          Number(headers.get("x-muster-cursor"))
        )
        const before = yield* cursor
        const view = { id: server, status: "offline", install: { phase: "failed" }, unsent_reports: 0 }
        assert.strictEqual((yield* register({ servers: Array(500).fill(view) })).status, 200)
        assert.isBelow((yield* cursor) - before, 100)
      })
    )

    it.effect("registrations are limited to one per second: 429 has Retry-After", () =>
      Effect.gen(function* () {
        const { register } = yield* LyingNodeService
        assert.strictEqual((yield* register({})).status, 200)
        const answers = yield* Effect.forEach([1, 2, 3], () => register({}, true), { concurrency: 3 })
        for (const answer of answers) {
          assertError(answer, 429, "a node registers at most once a second")
          assert.strictEqual(answer.headers.get("retry-after"), "1")
        }
      })
    )

    it.effect("a registration of 10,000 servers is accepted; one over 8 MiB is 413", () =>
      Effect.gen(function* () {
        const { register } = yield* LyingNodeService
        const servers = Array.from({ length: 10_000 }, (_, index) => ({
          id: `srv_${String(index).padStart(26, "0")}`,
          status: "running",
          install: {
            phase: "ready",
            exit_code: 0,
            started_at: "2026-01-01T00:00:00.000Z",
            finished_at: "2026-01-01T00:00:10.000Z"
          },
          unsent_reports: 0
        }))
        const taken = yield* register({ servers })
        assert.strictEqual(taken.status, 200, taken.text.slice(0, 300))
        assertError(yield* register({ system: { ...host, os: "x".repeat(8 * MIB) } }), 413)
        assert.strictEqual((yield* register({})).status, 200)
      })
    )
  })

  describe("a response of a lying node", () => {
    const ask = (path: string) =>
      Effect.flatMap(LyingNodeService, ({ api, server }) =>
        api.request("GET", `/api/servers/${server}${path}`)
      )
    const lie = (answering: Answering) =>
      Effect.map(LyingNodeService, ({ daemon }) => {
        daemon.answering = answering
      })

    it.effect("an endless response is 502, and eight at a time take bounded memory", () =>
      Effect.gen(function* () {
        const part = Buffer.from(`"${"x".repeat(MIB - 4)}",\n`)
        // Counted here: the memory of the control plane has up to 64 MiB of garbage at any time.
        let inProgress = 0
        let most = 0
        yield* lie((request, response) => {
          request.resume()
          response.writeHead(200, json)
          let sent = 0
          response.once("close", () => {
            inProgress -= sent
          })
          const more = () => {
            while (sent < 200 * MIB) {
              sent += part.length
              inProgress += part.length
              most = Math.max(most, inProgress)
              if (!response.write(part)) return void response.once("drain", more)
            }
            response.end()
          }
          more()
        })
        const page = "/logs?page=1&per_page=1000"
        const answers: ReadonlyArray<Answer> = yield* Effect.forEach(Array(8).fill(page), ask, {
          concurrency: 8
        })
        for (const answer of answers) assertError(answer, 502, /the response of the node is too large$/)
        // One response takes 16 MiB and what the sockets buffer, about 24; eight at the same time take 74.
        assert.isBelow(Math.round(most / MIB), 48)
        assertError(yield* ask("/stats"), 502, /the response of the node is too large$/)
      })
    )

    it.effect("a response with too many lines is cut to the page", () =>
      Effect.gen(function* () {
        const pagination = { total: -5, per_page: 1, current_page: 1, total_pages: 1 }
        yield* lie((_, response) =>
          response
            .writeHead(200, json)
            .end(JSON.stringify({ meta: { pagination }, data: Array(5000).fill("line") }))
        )
        const answer = yield* ask("/logs")
        assert.strictEqual(answer.status, 200)
        assert.strictEqual(answer.json.data.length, 100)
        assert.strictEqual(answer.json.meta.pagination.total, 0)
      })
    )

    it.effect("a compressed response is not decompressed, and calls do not ask for compression", () =>
      Effect.gen(function* () {
        const { daemon } = yield* LyingNodeService
        const bomb = gzipSync(Buffer.alloc(100 * MIB, " "))
        yield* lie((_, response) =>
          response
            .writeHead(200, { ...json, "content-encoding": "gzip", "content-length": bomb.length })
            .end(bomb)
        )
        assertError(yield* ask("/stats"), 502)
        assert.isUndefined(daemon.calls.at(-1)?.headers["accept-encoding"])
      })
    )

    it.effect("a redirect is not followed", () =>
      Effect.gen(function* () {
        const elsewhere = yield* listening
        yield* lie((_, response) => response.writeHead(307, { location: `${elsewhere.url}/api/stats` }).end())
        assertError(yield* ask("/stats"), 502)
        assert.deepStrictEqual(elsewhere.calls, [])
      }).pipe(Effect.scoped)
    )

    it.effect("a response with impossible numbers is 502; the text of a refusal is sanitized", () =>
      Effect.gen(function* () {
        const stats = {
          memory_bytes: -1,
          memory_limit_bytes: 0,
          cpu_absolute: 0,
          cpu_absolute_limit: 0,
          network: { rx_bytes: 0, tx_bytes: 0 },
          uptime: 0,
          state: "running",
          disk_bytes: 0,
          disk_max: 0,
          overlay_bytes: 0
        }
        yield* lie((_, response) => response.writeHead(200, json).end(JSON.stringify(stats)))
        assertError(yield* ask("/stats"), 502)
        const words = { detail: nasty.repeat(200), hint: nasty.repeat(200), request_id: nasty }
        const refusal = { code: "409", status: "Conflict", ...words }
        yield* lie((_, response) => response.writeHead(409, json).end(JSON.stringify(refusal)))
        const { detail, hint } = assertError(yield* ask("/stats"), 409)
        assertClean(detail ?? "")
        assertClean(hint ?? "")
      })
    )

    it.effect("a response with an endless head fails the call", () =>
      Effect.gen(function* () {
        yield* lie((_, response) => {
          for (let at = 0; at < 100; at++) response.setHeader(`x-${at}`, "x".repeat(1000))
          response.writeHead(200, json).end("{}")
        })
        assert.include([502, 503], (yield* ask("/stats")).status)
        yield* lie(correctResponse)
        yield* expectStatus((yield* LyingNodeService).api, 200, "GET", "/readyz")
      })
    )
  })

  describe("a console of a lying node", () => {
    it.effect("a frame over the size limit ends the console", () =>
      Effect.gen(function* () {
        const { api, server } = yield* LyingNodeService
        const lines = yield* Effect.callback<ReadonlyArray<string>>((resume) => {
          const got: Array<string> = []
          const socket = new WebSocket(`${api.url.replace("http", "ws")}/api/servers/${server}/console`, {
            headers: { authorization: `Bearer ${api.key}` }
          })
          socket.on("message", (data) => got.push(String(data)))
          socket.on("close", () => resume(Effect.succeed(got)))
        })
        assert.deepStrictEqual(lines, ["first"])
      })
    )
  })

  describe("a report of a lying node", () => {
    it.effect("the largest sequence number does not block later reports", () =>
      Effect.gen(function* () {
        const { api, daemon, post, register, server } = yield* LyingNodeService
        const last = installReport(server, Number.MAX_SAFE_INTEGER, { phase: "ready", exit_code: 7 })
        const later = installReport(server, 20, { phase: "ready", exit_code: 8 })
        for (const [sent, exit_code] of [
          [last, 7],
          [later, 8]
        ] as const) {
          assert.strictEqual((yield* report(post, sent)).status, 200)
          const { json } = yield* expectStatus(api, 200, "GET", `/api/servers/${server}/install`)
          assert.strictEqual(json.exit_code, exit_code)
        }
        assert.strictEqual((yield* report(post, last)).status, 200)
        // The node reports the server as missing, so it is installed again, with increasing sequences.
        const specs: Array<{ readonly last_sequence: number }> = []
        daemon.answering = (request, response) => {
          if (request.method !== "POST") {
            const words = { code: "404", status: "Not Found", detail: "gone", hint: "gone", request_id: "r" }
            request.resume()
            return void response.writeHead(404, json).end(JSON.stringify(words))
          }
          request.on("data", (chunk: Buffer) => void specs.push(JSON.parse(chunk.toString())))
          correctResponse(request, response)
        }
        assert.strictEqual((yield* register({})).status, 200)
        const made = yield* eventually(
          Effect.sync(() => specs),
          ([spec]) => spec !== undefined
        )
        assert.isBelow(made[0]?.last_sequence ?? Number.NaN, 2_000_000)
        yield* expectStatus(api, 200, "GET", `/api/servers/${server}`)
      })
    )
  })
})
