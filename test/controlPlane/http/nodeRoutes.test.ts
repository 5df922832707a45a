import { createServer } from "node:http"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer, type Scope } from "effect"
import { definitions } from "../../support/definitions.ts"
import { subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { alone, nodeIs, nodeKey } from "../../support/nodes.ts"
import { type Service, startService } from "../../support/Service.ts"
import { allocation, installReport, registration, statusReport, systemInfo } from "../../support/samples.ts"
import { becomes, create, expectStatus, statusOf } from "../../support/servers.ts"
import { assertError, games, options } from "./support/http.ts"

class Control extends Context.Service<Control, Service>()("test/http/Control") {
  static readonly layer = Layer.effect(
    Control,
    Effect.gen(function* () {
      const { env } = yield* definitions(games)
      return yield* startService({ env: { ...alone, ...env } })
    })
  )
}

/** A stub daemon that answers every call as configured, and records the calls. */
const handmade = Effect.acquireRelease(
  Effect.callback<{
    readonly url: string
    readonly calls: Array<{ readonly line: string; readonly authorization: string | undefined }>
    readonly gone: Set<string>
    readonly close: () => void
  }>((resume) => {
    const calls: Array<{ line: string; authorization: string | undefined }> = []
    const gone = new Set<string>()
    const server = createServer((request, response) => {
      let body = ""
      request.setEncoding("utf8")
      request.on("data", (chunk: string) => {
        body += chunk
      })
      request.on("end", () => {
        const { headers, method, url = "" } = request
        calls.push({ line: `${method} ${url}`, authorization: headers.authorization })
        const json = (status: number, value: unknown) =>
          response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value))
        const id = /^\/api\/servers\/([^/?]+)/.exec(url)?.[1] ?? ""
        if (gone.has(id)) {
          json(404, { code: "404", status: "Not Found", detail: "gone", hint: "gone", request_id: "r" })
        } else if (method === "POST" && url === "/api/servers") {
          json(200, {
            id: JSON.parse(body).id,
            status: "installing",
            install: { phase: "pending" },
            unsent_reports: 0
          })
        } else if (url.endsWith("/status")) json(200, { status: "offline" })
        else if (url === "/api/system") json(200, systemInfo)
        else response.end()
      })
    })
    server.listen(0, "127.0.0.1", () => {
      const address = server.address()
      const port = typeof address === "object" && address !== null ? address.port : 0
      resume(
        Effect.succeed({
          url: `http://127.0.0.1:${port}`,
          calls,
          gone,
          close: () => {
            server.closeAllConnections()
            server.close()
          }
        })
      )
    })
  }),
  (daemon) => Effect.sync(daemon.close)
)

const registrationOf = (id: string, url: string, change: Readonly<Record<string, unknown>> = {}) => ({
  ...registration(id, { url, boot_id: "boot-1", allocations: [allocation({ ports: "29000-29099" })] }),
  ...change
})

/** A registered stub node, and its requests to the control plane. */
const node = (
  api: Service,
  id: string
): Effect.Effect<
  {
    readonly daemon: Effect.Success<typeof handmade>
    readonly key: string
    readonly post: (path: string, body?: unknown) => ReturnType<Service["request"]>
    readonly token: string
  },
  unknown,
  Scope.Scope
> =>
  Effect.gen(function* () {
    const daemon = yield* handmade
    const { key } = yield* nodeKey(api, id)
    const post = (path: string, body?: unknown) =>
      api.request("POST", `/api/nodes/${id}${path}`, { key, ...(body === undefined ? {} : { body }) })
    const registered = yield* post("/register", registrationOf(id, daemon.url))
    assert.strictEqual(registered.status, 200, registered.text)
    yield* Effect.addFinalizer(() =>
      Effect.ignore(
        Effect.gen(function* () {
          for (const server of (yield* api.request("GET", "/api/servers")).json) {
            yield* api.request("DELETE", `/api/servers/${server.id}?force=true`)
          }
          yield* post("/internal/disconnect")
          yield* nodeIs(api, id, false)
        })
      )
    )
    return { daemon, key, post, token: registered.json.token }
  })

layer(Control.layer, options)("node routes", (it) => {
  describe("spec 9.2: register", () => {
    it.effect("each registration returns a new token for calls to the daemon", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const { daemon, post, token } = yield* node(api, "tokens")
        const id = yield* create(api, "kept")
        yield* eventually(
          Effect.sync(() => daemon.calls),
          (calls) => calls.some(({ line }) => line === "POST /api/servers")
        )
        assert.deepStrictEqual(
          new Set(daemon.calls.map(({ authorization }) => authorization)),
          new Set([`Bearer ${token}`])
        )
        const again = yield* post("/register", registrationOf("tokens", daemon.url, { boot_id: "boot-2" }))
        assert.notStrictEqual(again.json.token, token)
        assert.deepStrictEqual(again.json.delete, [])
        yield* expectStatus(api, 200, "GET", `/api/servers/${id}`)
        yield* eventually(
          Effect.sync(() => daemon.calls.at(-1)?.authorization),
          (authorization) => authorization === `Bearer ${again.json.token}`
        )
      })
    )

    it.effect("an invalid registration is 422 and does not bind the key", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const { key } = yield* nodeKey(api, "strange")
        const tries: ReadonlyArray<readonly [Readonly<Record<string, unknown>>, RegExp]> = [
          [{ id: "other" }, /^body field id: expected strange, as in the path/],
          [{ url: "ftp://127.0.0.1" }, /^body field url: /],
          [{ url: "http://user:pass@127.0.0.1" }, /^body field url: /],
          [{ name: "" }, /^name: /],
          [{ runtimes: ["magic"] }, /runtimes/],
          [{ servers: [{ id: "srv_1" }] }, /^body field servers\.0/]
        ]
        for (const [index, [change, detail]] of tries.entries()) {
          // A key registers once a second.
          const { key: own } = index === 0 ? { key } : yield* nodeKey(api, "strange")
          const answer = yield* api.request("POST", "/api/nodes/strange/register", {
            key: own,
            body: registrationOf("strange", "http://127.0.0.1:1", change)
          })
          assertError(answer, 422, detail)
        }
        assert.strictEqual((yield* api.request("GET", "/api/nodes/strange")).status, 404)
        const other = yield* handmade
        const free = yield* api.request("POST", "/api/nodes/free/register", {
          key,
          body: registrationOf("free", other.url)
        })
        assert.strictEqual(free.status, 200, free.text)
        const taken = yield* api.request("POST", "/api/nodes/strange/register", {
          key,
          body: registrationOf("strange", other.url)
        })
        assertError(taken, 403, "the API key is that of another node")
        yield* api.request("POST", "/api/nodes/free/internal/disconnect", { key })
      })
    )

    it.effect("a refused registration logs one warning for each reason, not for each attempt", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const { key } = yield* nodeKey(api, "refused")
        const other = yield* handmade
        const register = (id: string, change: Readonly<Record<string, unknown>>, by: string | null) =>
          api.request("POST", `/api/nodes/${id}/register`, {
            key: by,
            body: registrationOf("refused", other.url, change)
          })
        // A key registers once a second.
        const refusedBy = (id: string, change: Readonly<Record<string, unknown>>) =>
          Effect.flatMap(nodeKey(api, "other"), (made) => register(id, change, made.key))
        const warnings = (of: string) =>
          api
            .output()
            .split("\n")
            .filter((line) => /WARN .*registration refused: /.test(line) && line.endsWith(` node_id=${of}`))
        for (let times = 0; times < 2; times++) {
          assert.strictEqual((yield* refusedBy("refused", { url: "" })).status, 422)
          assert.strictEqual((yield* refusedBy("refused", { runtimes: ["magic"] })).status, 422)
          assert.strictEqual((yield* register("refused", {}, api.key)).status, 403)
        }
        const before = yield* eventually(
          Effect.sync(() => warnings("refused")),
          (lines) => lines.length >= 3
        )
        assert.strictEqual(before.length, 3, before.join("\n"))
        assert.match(before[0] ?? "", /body field url: expected an address .* \(422\)\. Set MUSTER_NODE_URL/)
        assert.match(before[1] ?? "", /runtimes.* \(422\)\./)
        assert.match(before[2] ?? "", /the API key lacks the scope Node \(403\)\. Use a key/)
        // After a registration, the same refusal is logged again.
        assert.strictEqual((yield* register("refused", {}, key)).status, 200)
        assert.strictEqual((yield* refusedBy("refused", { url: "" })).status, 422)
        assert.strictEqual((yield* refusedBy("another%0Aline", {})).status, 422)
        yield* eventually(
          Effect.sync(() => [warnings("refused").length, warnings("another\\nline").length]),
          ([refused, another]) => refused === 4 && another === 1
        )
        yield* api.request("POST", "/api/nodes/refused/internal/disconnect", { key })
      })
    )
  })

  describe("spec 9.3: Reports are at least once and in order for each server", () => {
    it.effect("a repeated report and a report of an earlier boot change nothing", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const { daemon, post } = yield* node(api, "teller")
        const stream = yield* subscribe(api)
        const id = yield* create(api, "kept")
        yield* eventually(
          Effect.sync(() => daemon.calls),
          (calls) => calls.some(({ line }) => line === "POST /api/servers")
        )
        const report = (type: string, sequence: number, body: object, boot_id = "boot-1") =>
          post("/internal/events", { boot_id, reports: [{ type, server_id: id, sequence, ...body }] })
        const crash = { reason: "exit code 1", exit_code: 1, timestamp: "2026-01-01T00:00:00.000Z" }
        const reports = [
          ["install-status", 1, { install: { phase: "installing" } }],
          ["install-status", 2, { install: { phase: "ready", exit_code: 0 } }],
          ["status", 3, { status: "offline", transient: false }],
          ["status", 4, { status: "starting", transient: false }],
          ["status", 5, { status: "running", transient: false }],
          ["crash", 6, { crash }],
          ["status", 7, { status: "offline", transient: false }]
        ] as const
        for (const [kind, sequence, body] of reports) {
          for (let times = 0; times < 3; times++) {
            assert.strictEqual((yield* report(kind, sequence, body)).status, 200)
          }
        }
        yield* becomes(api, id, "offline")
        // Every report is sent again, as a daemon does after a lost response.
        for (const [kind, sequence, body] of reports) {
          assert.strictEqual((yield* report(kind, sequence, body)).status, 200)
        }
        assert.deepStrictEqual(stream.of(id), [
          "installing",
          "offline",
          "starting",
          "running",
          "crash exit code 1",
          "offline"
        ])
        assertError(yield* report("status", 8, { status: "running", transient: false }, "boot-0"), 404)
        assertError(yield* post("/internal/heartbeat", { ...beat, boot_id: "boot-0" }), 404)
        assert.strictEqual((yield* post("/internal/heartbeat", { ...beat, boot_id: "boot-1" })).status, 200)
        assert.strictEqual(yield* statusOf(api, id), "offline")
      })
    )

    it.effect(
      "several reports in one message: the answer has those that fail, and all others are durable",
      () =>
        Effect.gen(function* () {
          const api = yield* Control
          const { daemon, post } = yield* node(api, "batcher")
          const stream = yield* subscribe(api)
          const [one, other] = [yield* create(api, "kept"), yield* create(api, "kept")]
          yield* eventually(
            Effect.sync(() => daemon.calls.filter(({ line }) => line === "POST /api/servers").length),
            (count) => count === 2
          )
          const install = { phase: "ready", exit_code: 0 }
          const installed = (server_id: string) => [
            { type: "install-status", server_id, sequence: 1, install },
            { type: "status", server_id, sequence: 2, status: "offline", transient: true }
          ]
          const unknown = {
            type: "status",
            server_id: "srv_unknown",
            sequence: 1,
            status: "running",
            transient: false
          }
          const send = (boot_id: string, reports: ReadonlyArray<unknown>) =>
            post("/internal/events", { boot_id, reports })
          const reports = [...installed(one), unknown, ...installed(other)]
          assertError(yield* send("boot-0", reports), 404)
          const first = yield* send("boot-1", reports)
          assert.strictEqual(first.status, 200)
          assert.deepStrictEqual(first.json, {
            failures: [{ index: 2, status: 404, detail: "node is not registered: batcher" }]
          })
          for (const id of [one, other]) yield* becomes(api, id, "offline")
          // The repetition is that of a lost response; the node was asked once to register for the unknown server.
          assert.deepStrictEqual((yield* send("boot-1", reports)).json, { failures: [] })
          for (const id of [one, other]) assert.deepStrictEqual(stream.of(id), ["installing", "offline"])
          assertError(
            yield* send("boot-1", [{ ...unknown, status: "magic" }, ...installed(one)]),
            422,
            /^body field reports\.0/
          )
          assertError(
            yield* send(
              "boot-1",
              Array.from({ length: 101 }, () => unknown)
            ),
            422,
            /reports.*100/
          )
        })
    )

    it.effect(
      "a snapshot lacks a server: the control plane asks the node and, if the server is missing, installs it again",
      () =>
        Effect.gen(function* () {
          const api = yield* Control
          const { daemon, post } = yield* node(api, "loser")
          const id = yield* create(api, "kept")
          yield* eventually(
            Effect.sync(() => daemon.calls.length),
            (count) => count > 0
          )
          const install = { phase: "ready", exit_code: 0 }
          const reports = [installReport(id, 1, install), statusReport(id, 2, "offline")]
          yield* post("/internal/events", { boot_id: "boot-1", reports })
          yield* becomes(api, id, "offline")
          daemon.gone.add(id)
          assert.strictEqual((yield* post("/register", registrationOf("loser", daemon.url))).status, 200)
          yield* becomes(api, id, "installing")
        })
    )
  })

  describe("spec 1.4: the routes of daemons", () => {
    it.effect("unknown routes, wrong methods and invalid bodies have the error body", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const { key } = yield* node(api, "careless")
        const at = (method: string, path: string, raw?: string) =>
          api.request(method, `/api/nodes/careless${path}`, { key, ...(raw === undefined ? {} : { raw }) })
        assertError(
          yield* at("GET", "/internal/nowhere"),
          404,
          "no route for GET /api/nodes/careless/internal/nowhere"
        )
        const wrong = yield* at("GET", "/internal/heartbeat")
        assertError(wrong, 405)
        assert.strictEqual(wrong.headers.get("allow"), "POST")
        assertError(yield* at("POST", "/internal/heartbeat", "{"), 422)
        assertError(yield* at("POST", "/internal/heartbeat", "{}"), 422, /^body field boot_id: required/)
        assertError(yield* at("POST", "/internal/heartbeat", `"${"x".repeat(1_100_000)}"`), 413)
        assertError(yield* api.request("POST", "/api/nodes/careless/internal/heartbeat", { key: null }), 401)
        assertError(
          yield* api.request("POST", "/api/nodes/careless/internal/heartbeat"),
          403,
          "the API key lacks the scope Node"
        )
        const openapi = yield* api.request("GET", "/openapi.json")
        assert.notInclude(openapi.text, "/internal/")
      })
    )
  })
})

const beat = { load: 0.5, memory_used_bytes: 1, disk_used_bytes: 1 }
