import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { HttpApi } from "effect/http-api"
import WebSocket from "ws"
import { DaemonApi } from "../../src/contract/nodeApi/DaemonApi.ts"
import { nodeTokens, readDatabase } from "../support/database.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { eventsAre, subscribe } from "../support/events.ts"
import { eventually } from "../support/eventually.ts"
import { journalProblems, processProblems } from "../support/invariants.ts"
import { revokeKey } from "../support/keys.ts"
import { alone, connectedNode, forgetNode, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { mainProcess, serverProcesses } from "../support/processes.ts"
import { requestTo, type Service, startService } from "../support/Service.ts"
import { statusReport } from "../support/samples.ts"
import {
  becomes,
  commands,
  create,
  expectStatus,
  logsHave,
  power,
  powered,
  running,
  statusOf
} from "../support/servers.ts"

const files = {
  software: {
    "game.yml": softwareFile("game", {
      files: { "server.sh": consoleServer },
      install: { script: "for n in 1 2 3; do echo step $n; done" }
    })
  },
  blueprints: {
    "kept.yml": blueprintFile("kept", "game"),
    "fragile.yml": blueprintFile("fragile", "game", {
      server: { restart: { on_crash: true, delay: 3600, max_delay: 3600 } }
    }),
    "passing.yml": blueprintFile("passing", "game", { save: false })
  }
}

/** A control plane without an embedded node, with a heartbeat timeout of 2 s. */
class Control extends Context.Service<Control, Service>()("test/Control") {
  static readonly layer = Layer.effect(
    Control,
    Effect.gen(function* () {
      const { env } = yield* definitions(files)
      return yield* startService({ env: { ...alone, ...env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "2" } })
    })
  )
}

const quick = { MUSTER_NODE_HEARTBEAT: "1" }
const options = { excludeTestServices: true, timeout: "60 seconds" } as const
const up = ["installing", "offline", "starting", "running"]

/** A node for one test, with its own ports. */
const node = Effect.fnUntraced(function* (api: Service, id: string, port: number, env = {}) {
  yield* Effect.addFinalizer(() => Effect.ignore(forgetNode(api, id)))
  return yield* connectedNode(api, id, {
    env: { ...quick, MUSTER_NODE_ALLOCATIONS: `127.0.0.1:${port}-${port + 49}`, ...env }
  })
})

const openSocket = (api: Service, path: string) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly socket: WebSocket; readonly lines: Array<string> }>((resume) => {
      const socket = new WebSocket(`${api.url.replace("http", "ws")}${path}`, {
        headers: { authorization: `Bearer ${api.key}` }
      })
      const lines: Array<string> = []
      socket.on("message", (data) => lines.push(String(data)))
      socket.on("error", (error) => resume(Effect.die(error)))
      socket.once("open", () => resume(Effect.succeed({ socket, lines })))
    }),
    ({ socket }) => Effect.sync(() => socket.terminate())
  )

layer(Control.layer, options)("node", (it) => {
  describe("spec 9.4: Control plane -> daemon", () => {
    it.effect("every operation on a server works over HTTP", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const metricsKey = "a-key-for-the-metrics-of-a-daemon"
        const daemon = yield* node(api, "wire", 27_000, { MUSTER_NODE_METRICS_KEY: metricsKey })
        const stream = yield* subscribe(api)
        const id = yield* create(api, "kept")
        yield* becomes(api, id, "offline")
        const install = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/install`)
        assert.deepInclude(install.json, { phase: "ready", exit_code: 0, entrypoint: "sh" })
        const installLogs = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/install/logs`)
        assert.includeMembers(installLogs.json.data, ["step 1", "step 2", "step 3"])

        yield* powered(api, id, "start")
        yield* becomes(api, id, "running")
        assert.isDefined(yield* mainProcess(daemon.dataDir, id))
        const read = requestTo(daemon.url, metricsKey)
        const metrics = yield* expectStatus({ request: read }, 200, "GET", "/metrics")
        assert.match(metrics.text, /^muster_daemon_servers\{status="running"\} 1$/m)
        assert.match(metrics.text, /^process_resident_memory_bytes \d+$/m)
        for (const [path, key] of [
          ["/metrics", api.key],
          ["/servers", metricsKey]
        ] as const) {
          assert.strictEqual((yield* read("GET", path, { key })).status, 401)
        }
        const console = yield* openSocket(api, `/api/servers/${id}/console`)
        yield* expectStatus(api, 204, "POST", `/api/servers/${id}/commands`, {
          body: { commands: ["hello"] }
        })
        console.socket.send("from the console")
        yield* logsHave(api, id, "got from the console")
        yield* eventually(
          Effect.sync(() => console.lines),
          (lines) =>
            lines.some((line) => line.startsWith("got hello")) && lines.includes("got from the console")
        )
        const stats = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/stats?update_disk_usage=true`)
        assert.strictEqual(stats.json.state, "running")
        assert.isAbove(stats.json.memory_bytes, 0)

        yield* powered(api, id, "pause")
        yield* becomes(api, id, "paused")
        yield* powered(api, id, "unpause")
        yield* becomes(api, id, "running")
        assert.strictEqual((yield* commands(api, id, "exit 7")).status, 204)
        yield* eventsAre(stream, id, [...up, "paused", "running", "crash exit code 7", "offline"])
        yield* expectStatus(api, 202, "POST", `/api/servers/${id}/reset`)
        // Refused with a reason until the files are there.
        const reinstall = yield* eventually(
          api.request("POST", `/api/servers/${id}/reinstall`),
          (answer) =>
            answer.status !== 409 || !/^Wait (until it is done|for the status offline)/.test(answer.json.hint)
        )
        assert.strictEqual(reinstall.status, 202, reinstall.text)
        yield* eventually(
          Effect.sync(() => stream.of(id).slice(8)),
          (seen) => seen.join() === "installing,offline,installing,offline"
        )
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
        assert.strictEqual(yield* statusOf(api, id), "gone")
        yield* eventually(
          Effect.sync(() => console.socket.readyState),
          (state) => state === console.socket.CLOSED
        )
        assert.deepStrictEqual(serverProcesses(daemon.dataDir), [])
      })
    )

    it.effect("a server that is not saved is deleted after its run", () =>
      Effect.gen(function* () {
        const api = yield* Control
        yield* node(api, "passing", 27_100)
        const stream = yield* subscribe(api)
        const id = yield* running(api, "passing")
        yield* powered(api, id, "stop")
        yield* eventsAre(stream, id, [...up, "stopping", "offline", "deleted"])
      })
    )

    it.effect("servers are spread over the nodes, and the summary has the name of the node", () =>
      Effect.gen(function* () {
        const api = yield* Control
        yield* node(api, "left", 27_200)
        yield* node(api, "right", 27_300)
        const ids = yield* Effect.forEach([1, 2, 3, 4], () => create(api, "kept"))
        const at = yield* Effect.forEach(ids, (id) =>
          Effect.map(expectStatus(api, 200, "GET", `/api/servers/${id}`), (answer) => answer.json.node_id)
        )
        assert.deepStrictEqual(at.toSorted(), ["left", "left", "right", "right"])
        for (const id of ids) yield* becomes(api, id, "offline")
      })
    )

    it.effect(
      "every route of the daemon refuses a request without the current token, with the error body",
      () =>
        Effect.gen(function* () {
          const api = yield* Control
          const daemon = yield* node(api, "closed", 27_400)
          const tokenNow = Effect.map(nodeTokens(api.dataDir), (tokens) => tokens.get("closed") ?? "")
          const ask = (key: string | null, method: string, path: string) =>
            requestTo(daemon.url, "")(method, path, { key })
          const first = yield* tokenNow
          assert.strictEqual((yield* ask(first, "GET", "/api/servers")).status, 200)
          // A removed node registers again and gets a new token.
          yield* expectStatus(api, 200, "DELETE", "/api/nodes/closed?force=true")
          yield* nodeIs(api, "closed", true)
          const second = yield* tokenNow
          assert.notStrictEqual(second, first)
          yield* eventually(ask(second, "GET", "/api/servers"), ({ status }) => status === 200)

          const routes: Array<readonly [string, string]> = [
            ["GET", "/nowhere"],
            ["PUT", "/api/servers"]
          ]
          HttpApi.reflect(DaemonApi, {
            onGroup: () => {},
            onEndpoint: ({ endpoint }) => {
              routes.push([endpoint.method, endpoint.path.replace(":id", "srv_x")])
            }
          })
          assert.isAtLeast(routes.length, 15)
          for (const key of [null, "", first, `${second}x`, second.slice(1), daemon.key, api.key]) {
            for (const [method, path] of routes) {
              const answer = yield* ask(key, method, path)
              assert.strictEqual(answer.status, 401, `${method} ${path}`)
              assert.deepStrictEqual(Object.keys(answer.json).toSorted(), [
                "code",
                "detail",
                "hint",
                "request_id",
                "status"
              ])
              assert.strictEqual(answer.headers.get("www-authenticate"), "Bearer")
            }
          }
          for (const key of [first, api.key]) {
            const refused = yield* Effect.callback<number | undefined>((resume) => {
              const socket = new WebSocket(`${daemon.url.replace("http", "ws")}/api/servers/srv_x/console`, {
                headers: { authorization: `Bearer ${key}` }
              })
              socket.on("open", () => resume(Effect.die("a console without the token")))
              socket.on("unexpected-response", (_, response) => resume(Effect.succeed(response.statusCode)))
              socket.on("error", () => {})
            })
            assert.strictEqual(refused, 401)
          }
        })
    )
  })

  describe("spec 9.1: Daemon -> control plane", () => {
    it.effect("a key is bound to the first node that registers with it", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const one = yield* node(api, "one", 27_500)
        const two = yield* node(api, "two", 27_550)
        const id = yield* create(api, "kept", { node_id: "two" })
        yield* becomes(api, id, "offline")
        const beat = { boot_id: "x", load: 0, memory_used_bytes: 0, disk_used_bytes: 0 }
        const report = { boot_id: "x", reports: [statusReport(id, 1, "running")] }
        for (const [method, path, body] of [
          ["POST", "/register", {}],
          ["POST", "/internal/heartbeat", beat],
          ["POST", "/internal/disconnect", undefined],
          ["GET", "/internal/servers", undefined],
          ["GET", `/internal/servers/${id}`, undefined],
          ["GET", `/internal/servers/${id}/install`, undefined],
          ["POST", "/internal/events", report]
        ] as const) {
          const answer = yield* api.request(method, `/api/nodes/two${path}`, { key: one.key, body })
          // The body of a registration is checked before its key.
          assert.strictEqual(answer.status, path === "/register" ? 422 : 403, `${method} ${path}`)
          const admin = yield* api.request(method, `/api/nodes/two${path}`, { body })
          assert.strictEqual(admin.status, 403, `admin: ${method} ${path}`)
        }
        // The routes of a node do not show servers of others.
        const own = (path: string, key: string) => api.request("GET", path, { key })
        assert.strictEqual((yield* own(`/api/nodes/one/internal/servers/${id}`, one.key)).status, 404)
        assert.strictEqual((yield* own(`/api/nodes/one/internal/servers`, one.key)).json.data.length, 0)
        const listed = yield* own("/api/nodes/two/internal/servers?per_page=1", two.key)
        assert.strictEqual(listed.json.meta.pagination.total, 1)
        assert.strictEqual(listed.json.data[0].id, id)
        assert.deepInclude(listed.json.data[0].definition, { software: "game", save: true })
        const install = yield* own(`/api/nodes/two/internal/servers/${id}/install`, two.key)
        assert.strictEqual(install.json.install_script.entrypoint, "sh")
        // A report of an old boot requires a registration and changes nothing.
        const stale = yield* api.request("POST", "/api/nodes/two/internal/events", {
          key: two.key,
          body: report
        })
        assert.strictEqual(stale.status, 404)
        const heartbeat = yield* api.request("POST", "/api/nodes/two/internal/heartbeat", {
          key: two.key,
          body: beat
        })
        assert.strictEqual(heartbeat.status, 404)
        assert.strictEqual(yield* statusOf(api, id), "offline")
        // A node key opens no other route.
        assert.strictEqual((yield* own("/api/servers", two.key)).status, 403)
        assert.strictEqual((yield* own("/metrics", two.key)).status, 403)
      })
    )

    it.effect("another node cannot register with a bound key", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const bound = yield* node(api, "bound", 27_600)
        const thief = yield* startNode({ control: api.url, key: bound.key, id: "thief", env: quick })
        yield* eventually(Effect.sync(thief.output), (text) =>
          text.includes("the API key is that of another node")
        )
        assert.strictEqual((yield* api.request("GET", "/api/nodes/thief")).status, 404)
      })
    )

    it.effect("a revoked key is refused at once", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const { key, id: key_id } = yield* nodeKey(api, "revoked")
        yield* Effect.addFinalizer(() => Effect.ignore(forgetNode(api, "revoked")))
        const daemon = yield* connectedNode(api, "revoked", { key, env: quick })
        const servers = () => api.request("GET", "/api/nodes/revoked/internal/servers", { key })
        assert.strictEqual((yield* servers()).status, 200)
        yield* revokeKey(api.dataDir, key_id)
        assert.strictEqual((yield* servers()).status, 401)
        yield* nodeIs(api, "revoked", false)
        yield* eventually(Effect.sync(daemon.output), (text) =>
          text.includes("refuses this node's key: revoked")
        )
      })
    )
  })

  describe("spec 9.6: When something breaks", () => {
    it.effect(
      "a frozen daemon makes its servers unknown; when it resumes they are correct, each published once",
      () =>
        Effect.gen(function* () {
          const api = yield* Control
          const daemon = yield* node(api, "frozen", 27_700)
          const stream = yield* subscribe(api)
          const id = yield* running(api, "kept")
          const crashed = yield* running(api, "kept")
          const main = yield* mainProcess(daemon.dataDir, crashed)
          daemon.process.kill("SIGSTOP")
          yield* becomes(api, id, "unknown")
          yield* nodeIs(api, "frozen", false)
          const refused = yield* commands(api, id, "hello")
          assert.strictEqual(refused.status, 503)
          assert.strictEqual(refused.json.detail, "node is not connected: frozen")
          const placed = yield* api.request("POST", "/api/servers", { body: { blueprint_id: "kept" } })
          assert.strictEqual(placed.json.detail, "no nodes available")
          if (main !== undefined) process.kill(main.pid, "SIGKILL")
          daemon.process.kill("SIGCONT")
          yield* becomes(api, id, "running")
          yield* eventsAre(stream, id, [...up, "unknown", "running"])
          yield* becomes(api, crashed, "offline")
          yield* eventually(
            Effect.sync(() => stream.of(crashed)),
            (seen) => seen.at(-1) === "offline" && seen.filter((it) => it.startsWith("crash")).length === 1
          )
          yield* expectStatus(api, 204, "POST", `/api/servers/${id}/commands`, { body: { commands: ["hi"] } })
          yield* logsHave(api, id, "got hi ")
        })
    )

    it.effect("the servers of a killed daemon run on and are adopted", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const first = yield* node(api, "killed", 27_800)
        const stream = yield* subscribe(api)
        const ids = yield* Effect.forEach([1, 2, 3], () => running(api, "kept"), { concurrency: 3 })
        const before = yield* Effect.forEach(ids, (id) => mainProcess(first.dataDir, id))
        yield* first.kill("SIGKILL")
        const { output } = yield* startNode({
          control: api.url,
          key: first.key,
          id: "killed",
          dataDir: first.dataDir,
          env: { ...quick, MUSTER_NODE_ALLOCATIONS: "127.0.0.1:27800-27849" }
        })
        for (const id of ids) {
          yield* expectStatus(api, 200, "GET", `/api/servers/${id}`)
          yield* eventually(
            Effect.map(commands(api, id, "again"), (answer) => answer.status),
            (status) => status === 204
          )
          yield* logsHave(api, id, "got again ")
        }
        assert.match(output(), /INFO .*: running servers adopted servers=3$/m)
        assert.deepStrictEqual(yield* Effect.forEach(ids, (id) => mainProcess(first.dataDir, id)), before)
        const listed = (yield* expectStatus(api, 200, "GET", "/api/servers?include=status,limits")).json
        assert.deepStrictEqual(processProblems(listed, serverProcesses(first.dataDir)), [])
        const { journal, records } = yield* readDatabase(api.dataDir)
        assert.deepStrictEqual(journalProblems(journal, records), [])
        for (const id of ids) {
          const seen = stream.of(id).filter((status) => status !== "unknown")
          assert.deepStrictEqual(seen.slice(0, 4), up)
        }
      })
    )

    it.effect("the pending restart of a crashed server survives the kill of its daemon", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const first = yield* node(api, "fragile", 28_700)
        const id = yield* running(api, "fragile", { node_id: "fragile" })
        const restart = Effect.map(
          expectStatus(api, 200, "GET", `/api/servers/${id}?include=restart`),
          ({ json }) => json.restart
        )
        yield* commands(api, id, "exit 3")
        const before = yield* eventually(restart, (it) => it !== null)
        assert.strictEqual(before.attempt, 1)
        yield* first.kill("SIGKILL")
        yield* startNode({
          control: api.url,
          key: first.key,
          id: "fragile",
          dataDir: first.dataDir,
          env: { ...quick, MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28700-28749" }
        })
        yield* nodeIs(api, "fragile", true)
        assert.deepStrictEqual(yield* eventually(restart, (it) => it !== null), before)
        yield* eventually(power(api, id, "start"), ({ status }) => status === 200)
        yield* becomes(api, id, "running")
        assert.isNull(yield* restart)
      })
    )

    it.effect("a server deleted while its node is away is removed from the node when it returns", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const first = yield* node(api, "orphans", 28_500)
        const kept = yield* running(api, "kept")
        const dropped = yield* running(api, "kept")
        yield* first.kill("SIGKILL")
        yield* nodeIs(api, "orphans", false)
        assert.strictEqual((yield* api.request("DELETE", `/api/servers/${dropped}`)).status, 503)
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${dropped}?force=true`)
        yield* startNode({
          control: api.url,
          key: first.key,
          id: "orphans",
          dataDir: first.dataDir,
          env: { ...quick, MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28500-28549" }
        })
        yield* becomes(api, kept, "running")
        yield* eventually(
          Effect.sync(() => new Set(serverProcesses(first.dataDir).map(({ server }) => server))),
          (servers) => servers.size === 1 && servers.has(kept)
        )
      })
    )

    it.effect("a daemon that gets SIGTERM stops its servers and deregisters", () =>
      Effect.gen(function* () {
        const api = yield* Control
        const daemon = yield* node(api, "leaving", 27_900)
        const stream = yield* subscribe(api)
        const id = yield* running(api, "passing")
        yield* daemon.kill("SIGTERM")
        assert.strictEqual(daemon.process.exitCode, 0)
        const leavingLines = [
          ...daemon
            .output()
            .matchAll(/(shutting down: its servers are stopped|the daemon has ended) node_id=leaving/g)
        ]
        assert.deepStrictEqual(
          leavingLines.map(([, what]) => what),
          ["shutting down: its servers are stopped", "the daemon has ended"]
        )
        yield* eventsAre(stream, id, [...up, "stopping", "offline", "deleted"])
        assert.deepStrictEqual(serverProcesses(daemon.dataDir), [])
        assert.deepStrictEqual((yield* expectStatus(api, 200, "GET", "/api/nodes")).json, [])
      })
    )
  })
})
