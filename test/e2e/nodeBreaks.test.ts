import { createServer } from "node:http"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readDatabase } from "../support/database.ts"
import { blueprintFile, definitions, obedient, softwareFile } from "../support/definitions.ts"
import { replay, subscribe, told } from "../support/events.ts"
import { journalProblems, processProblems } from "../support/invariants.ts"
import { alone, connectedNode, freePort, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { mainProcess, serverProcesses } from "../support/processes.ts"
import { eventually, requestTo, startService, temporaryFolder } from "../support/Service.ts"
import { becomes, create, expectStatus, installed, running, statusOf } from "../support/servers.ts"

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": obedient } }) },
  blueprints: {
    "kept.yml": blueprintFile("kept", "game"),
    "passing.yml": blueprintFile("passing", "game", { save: false })
  }
}
const up = ["installing", "offline", "starting", "running"]
const quick = { MUSTER_NODE_HEARTBEAT: "1" }

/** Passes requests on and keeps the answers to itself. */
const answerless = (control: string) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly url: string; readonly close: () => void; readonly seen: Array<string> }>(
      (resume) => {
        const seen: Array<string> = []
        const server = createServer((request) => {
          let body = ""
          request.setEncoding("utf8")
          request.on("data", (chunk: string) => {
            body += chunk
          })
          request.on("end", () => {
            const { authorization = "" } = request.headers
            const key = authorization.replace(/^Bearer /, "")
            const sent = requestTo(control, key)(request.method ?? "", request.url ?? "", { raw: body })
            Effect.runCallback(sent, { onExit: () => void seen.push(body) })
          })
        })
        server.listen(0, "127.0.0.1", () => {
          const address = server.address()
          const port = typeof address === "object" && address !== null ? address.port : 0
          const close = () => {
            server.closeAllConnections()
            server.close()
          }
          resume(Effect.succeed({ url: `http://127.0.0.1:${port}`, seen, close }))
        })
      }
    ),
    ({ close }) => Effect.sync(close)
  )

describe("node-protocol, When something breaks", () => {
  it.live(
    "node gone for node_lost_after: what is not saved is given up, and removed when the node returns; the rest comes back",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const api = yield* startService({
          env: { ...alone, ...env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "1", MUSTER_NODE_LOST_AFTER: "4" }
        })
        const ports = { ...quick, MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28600-28602" }
        const first = yield* connectedNode(api, "gone", { env: ports })
        const stream = yield* subscribe(api)
        const kept = yield* running(api, "kept")
        const passing = yield* running(api, "passing")
        const idle = yield* installed(api, "passing")
        const free = () => Effect.map(api.request("GET", "/api/nodes/gone"), ({ json }) => json.ports_free)
        assert.strictEqual(yield* free(), 0)
        yield* first.kill("SIGKILL")
        yield* told(stream, passing, [...up, "unknown", "deleted"])
        yield* told(stream, idle, ["installing", "offline", "unknown", "deleted"])
        assert.strictEqual(yield* statusOf(api, kept), "unknown")
        assert.strictEqual(yield* free(), 2)
        assert.isDefined(yield* mainProcess(first.dataDir, passing))

        yield* startNode({
          control: api.url,
          key: first.key,
          id: "gone",
          dataDir: first.dataDir,
          env: ports
        })
        yield* told(stream, kept, [...up, "unknown", "running"])
        yield* eventually(
          Effect.sync(() => new Set(serverProcesses(first.dataDir).map(({ server }) => server))),
          (servers) => servers.size === 1 && servers.has(kept)
        )
        // Its ports can be had by others.
        yield* running(api, "kept")
        yield* running(api, "kept")
        assert.deepStrictEqual(stream.of(passing), [...up, "unknown", "deleted"])
        const { journal, records } = yield* readDatabase(api.dataDir)
        assert.deepStrictEqual(journalProblems(journal, records), [])
      }).pipe(Effect.scoped),
    60_000
  )

  it.live(
    "control plane killed while reports wait: they come in after its restart, in order and once",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const dataDir = join(yield* temporaryFolder, "data")
        const options = { dataDir, env: { ...alone, ...env, MUSTER_PORT: String(yield* freePort) } }
        const first = yield* startService(options)
        const node = yield* connectedNode(first, "waiting", {
          env: { ...quick, MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28610-28629" }
        })
        const ids = yield* Effect.forEach([1, 2, 3, 4, 5, 6], () => running(first, "kept"), {
          concurrency: 6
        })
        yield* first.kill("SIGKILL")
        const [one, ...rest] = ids
        for (const id of rest) {
          const main = yield* mainProcess(node.dataDir, id)
          if (main !== undefined) process.kill(main.pid, "SIGKILL")
        }
        yield* eventually(
          Effect.sync(() => new Set(serverProcesses(node.dataDir).map(({ server }) => server))),
          (servers) => servers.size === 1
        )
        const api = yield* startService(options)
        for (const id of rest) yield* becomes(api, id, "offline")
        yield* becomes(api, one ?? "", "running")
        const { journal, newest, records } = yield* readDatabase(dataDir)
        assert.deepStrictEqual(journalProblems(journal, records), [])
        const events = yield* replay(api, newest)
        for (const id of rest) {
          const told = events.filter((event) => event.Data.server_id === id).map(({ Topic }) => Topic)
          assert.deepStrictEqual(told.slice(-2), ["crash", "status"], id)
          assert.strictEqual(told.filter((topic) => topic === "crash").length, 1, id)
        }
        const listed = (yield* expectStatus(api, 200, "GET", "/api/servers?include=status,limits")).json
        assert.deepStrictEqual(processProblems(listed, serverProcesses(node.dataDir)), [])
      }).pipe(Effect.scoped),
    60_000
  )

  it.live(
    "daemon killed half-way through its registration: the next start replaces it, and the late one does not last",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const api = yield* startService({ env: { ...alone, ...env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "3" } })
        const proxy = yield* answerless(api.url)
        const { key } = yield* nodeKey(api, "half")
        const ports = { ...quick, MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28630-28649" }
        const first = yield* startNode({ control: proxy.url, key, id: "half", env: ports })
        yield* nodeIs(api, "half", true)
        // The control plane calls a daemon that does not know its token, and makes it install nothing twice.
        const id = yield* create(api, "kept", { node_id: "half", start: true })
        yield* first.kill("SIGKILL")
        assert.strictEqual(proxy.seen.length, 1)
        const second = yield* startNode({
          control: api.url,
          key,
          id: "half",
          dataDir: first.dataDir,
          env: ports
        })
        yield* becomes(api, id, "running")
        const before = yield* mainProcess(second.dataDir, id)
        // The registration of the boot before comes in late: the living one is told to register, and is back.
        const late = yield* requestTo(api.url, key)("POST", "/api/nodes/half/register", {
          raw: proxy.seen[0] ?? ""
        })
        assert.strictEqual(late.status, 200, late.text)
        yield* eventually(
          api.request("POST", `/api/servers/${id}/commands`, { body: { commands: ["hello"] } }),
          ({ status }) => status === 204
        )
        yield* becomes(api, id, "running")
        assert.deepStrictEqual(yield* mainProcess(second.dataDir, id), before)
        const { journal, records } = yield* readDatabase(api.dataDir)
        assert.deepStrictEqual(journalProblems(journal, records), [])
      }).pipe(Effect.scoped),
    60_000
  )
})
