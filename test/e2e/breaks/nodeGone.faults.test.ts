import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { readDatabase } from "../../support/database.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../../support/definitions.ts"
import { eventsAre, subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { during, type Fault, restartable, tcpProxy } from "../../support/faults/index.ts"
import { journalProblems, processProblems } from "../../support/invariants.ts"
import { alone, freePort, nodeIs, nodeKey, startNode } from "../../support/nodes.ts"
import { mainProcess, serverProcesses } from "../../support/processes.ts"
import { startService } from "../../support/Service.ts"
import { becomes, commands, expectStatus, logsHave, running } from "../../support/servers.ts"
import { nodeChangesIn } from "./nodes.ts"

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}
const up = ["installing", "offline", "starting", "running"]

/** A control plane and a real node, with the faults between them. */
class Setup extends Context.Service<Setup, Effect.Success<typeof makeSetup>>()("test/World") {
  static readonly layer = Layer.effect(
    Setup,
    Effect.suspend(() => makeSetup)
  )
}

const makeSetup = Effect.gen(function* () {
  const { env } = yield* definitions(files)
  const api = yield* startService({ env: { ...alone, ...env, MUSTER_NODE_HEARTBEAT_TIMEOUT: "3" } })
  const { key } = yield* nodeKey(api, "n1")
  const own = yield* freePort
  const [toControl, toDaemon] = [yield* tcpProxy(Number(new URL(api.url).port)), yield* tcpProxy(own)]
  const node = yield* restartable(
    "the node",
    startNode({
      control: toControl.through(api.url),
      key,
      id: "n1",
      env: {
        MUSTER_NODE_HEARTBEAT: "1",
        MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28760-28779",
        MUSTER_NODE_PORT: String(own),
        MUSTER_NODE_URL: `http://127.0.0.1:${toDaemon.port}`
      }
    })
  )
  yield* nodeIs(api, "n1", true)
  const both = (what: "dropped" | "swallowed", name: string): Fault => ({
    name,
    inject: Effect.andThen(toControl[what].inject, toDaemon[what].inject),
    heal: Effect.andThen(toDaemon[what].heal, toControl[what].heal)
  })
  const faults = {
    frozen: node.frozen,
    dropped: both("dropped", "every connection between control plane and daemon is reset"),
    swallowed: both("swallowed", "no packet passes between control plane and daemon")
  }
  return { api, faults, dataDir: node.latest().dataDir }
})

const ways = {
  frozen: "the daemon is frozen",
  dropped: "every connection between control plane and daemon is reset",
  swallowed: "no packet passes between control plane and daemon"
} as const

describe("spec 9.6: node gone for 30 s", () => {
  layer(Setup.layer, { excludeTestServices: true, timeout: "60 seconds" })((it) => {
    for (const way of ["frozen", "dropped", "swallowed"] as const) {
      it.effect(
        ways[way],
        () =>
          Effect.gen(function* () {
            const { api, dataDir, faults } = yield* Setup
            const { newest } = yield* readDatabase(api.dataDir)
            const stream = yield* subscribe(api)
            const [kept, crashed, orphan] = yield* Effect.all(
              [running(api, "kept"), running(api, "kept"), running(api, "kept")],
              { concurrency: "unbounded" }
            )
            yield* during(
              faults[way],
              Effect.gen(function* () {
                for (const id of [kept, crashed, orphan]) yield* becomes(api, id, "unknown")
                yield* nodeIs(api, "n1", false)
                const placed = yield* expectStatus(api, 503, "POST", "/api/servers", {
                  body: { blueprint_id: "kept" }
                })
                assert.strictEqual(placed.json.detail, "no nodes available")
                const named = yield* expectStatus(api, 503, "POST", "/api/servers", {
                  body: { blueprint_id: "kept", node_id: "n1" }
                })
                assert.strictEqual(named.json.detail, "node is not connected: n1")
                assert.strictEqual((yield* commands(api, kept, "hello")).status, 503)
                yield* expectStatus(api, 200, "DELETE", `/api/servers/${orphan}?force=true`)
                const main = yield* mainProcess(dataDir, crashed)
                if (main !== undefined) process.kill(main.pid, "SIGKILL")
              })
            )
            yield* eventsAre(stream, kept, [...up, "unknown", "running"])
            yield* becomes(api, crashed, "offline")
            yield* eventually(
              Effect.sync(() => stream.of(crashed)),
              (seen) => seen.at(-1) === "offline" && seen.filter((it) => it.startsWith("crash")).length === 1
            )
            yield* eventually(
              Effect.sync(() => new Set(serverProcesses(dataDir).map(({ server }) => server))),
              (servers) => servers.size === 1 && servers.has(kept)
            )
            yield* expectStatus(api, 204, "POST", `/api/servers/${kept}/commands`, {
              body: { commands: ["hi"] }
            })
            yield* logsHave(api, kept, "got hi ")
            const next = yield* running(api, "kept")
            const listed = (yield* expectStatus(api, 200, "GET", "/api/servers?include=status,limits")).json
            assert.deepStrictEqual(processProblems(listed, serverProcesses(dataDir)), [])
            const { journal, records } = yield* readDatabase(api.dataDir)
            assert.deepStrictEqual(journalProblems(journal, records), [])
            const [first] = nodeChangesIn(journal.filter(({ cursor }) => cursor > newest))
            assert.strictEqual(first, "n1 lost")
            for (const id of [kept, crashed, next])
              yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
          }),
        60_000
      )
    }
  })
})
