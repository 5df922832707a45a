import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readDatabase } from "../../support/database.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../../support/definitions.ts"
import { eventsAre, subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { journalProblems } from "../../support/invariants.ts"
import { alone, connectedNode, startNode } from "../../support/nodes.ts"
import { mainProcess, serverProcesses } from "../../support/processes.ts"
import { startService } from "../../support/Service.ts"
import { installed, running, statusOf } from "../../support/servers.ts"

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: {
    "kept.yml": blueprintFile("kept", "game"),
    "passing.yml": blueprintFile("passing", "game", { save: false })
  }
}
const up = ["installing", "offline", "starting", "running"]
const quick = { MUSTER_NODE_HEARTBEAT: "1" }

describe("spec 9.6: node gone for node_lost_after (10 min)", () => {
  it.live(
    "servers that are not saved are given up, and deleted when the node returns; saved servers recover",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const api = yield* startService({
          env: { ...alone, ...env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "3", MUSTER_NODE_LOST_AFTER: "5" }
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
        yield* eventsAre(stream, passing, [...up, "unknown", "deleted"])
        yield* eventsAre(stream, idle, ["installing", "offline", "unknown", "deleted"])
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
        yield* eventsAre(stream, kept, [...up, "unknown", "running"])
        yield* eventually(
          Effect.sync(() => new Set(serverProcesses(first.dataDir).map(({ server }) => server))),
          (servers) => servers.size === 1 && servers.has(kept)
        )
        // Other servers can get the freed ports.
        yield* running(api, "kept")
        yield* running(api, "kept")
        assert.deepStrictEqual(stream.of(passing), [...up, "unknown", "deleted"])
        const { journal, records } = yield* readDatabase(api.dataDir)
        assert.deepStrictEqual(journalProblems(journal, records), [])
      }).pipe(Effect.scoped),
    60_000
  )
})
