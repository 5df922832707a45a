import { createServer } from "node:http"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readDatabase } from "../../support/database.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../../support/definitions.ts"
import { eventually } from "../../support/eventually.ts"
import { journalProblems } from "../../support/invariants.ts"
import { alone, connectedNode, nodeKey, startNode } from "../../support/nodes.ts"
import { mainProcess } from "../../support/processes.ts"
import { requestTo, startService } from "../../support/Service.ts"
import { becomes, running } from "../../support/servers.ts"

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}
const quick = { MUSTER_NODE_HEARTBEAT: "1" }

/** Passes requests on and drops the responses. */
const dropsResponses = (control: string) =>
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

describe("spec 9.6: daemon killed", () => {
  it.live(
    "if the daemon is killed during its registration, the next boot replaces it, and the late registration does not last",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const api = yield* startService({ env: { ...alone, ...env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "3" } })
        const proxy = yield* dropsResponses(api.url)
        const { key } = yield* nodeKey(api, "half")
        const ports = { ...quick, MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28630-28649" }
        const whole = yield* connectedNode(api, "half", { key, env: ports })
        const { dataDir } = whole
        const id = yield* running(api, "kept", { node_id: "half" })
        yield* whole.kill("SIGKILL")
        const first = yield* startNode({ control: proxy.url, key, id: "half", dataDir, env: ports })
        // The control plane calls a daemon that does not know its token.
        yield* eventually(
          Effect.sync(() => proxy.seen.length),
          (registrations) => registrations === 1
        )
        yield* first.kill("SIGKILL")
        const second = yield* startNode({ control: api.url, key, id: "half", dataDir, env: ports })
        yield* becomes(api, id, "running")
        const before = yield* mainProcess(second.dataDir, id)
        // The registration of the previous boot arrives late: the running boot must register again, and does.
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
