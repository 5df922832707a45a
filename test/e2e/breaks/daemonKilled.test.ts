import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readDatabase } from "../../support/database.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../../support/definitions.ts"
import { eventsAre, subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { restartable } from "../../support/faults/index.ts"
import { journalProblems, processProblems } from "../../support/invariants.ts"
import { alone, nodeIs, nodeKey, startNode } from "../../support/nodes.ts"
import { endLeftovers, mainProcess, serverProcesses, shimProcess } from "../../support/processes.ts"
import { startService } from "../../support/Service.ts"
import { commands, expectStatus, logsHave, running } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}
const up = ["installing", "offline", "starting", "running"]
const quick = { MUSTER_NODE_HEARTBEAT: "1" }

describe("spec 9.6: daemon killed", () => {
  it.live(
    "running processes are adopted after the restart, and a process that ended meanwhile is a crash, published once",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const api = yield* startService({ env: { ...alone, ...env } })
        const { key } = yield* nodeKey(api, "n1")
        const dataDir = join(yield* temporaryFolder, "n1")
        yield* Effect.addFinalizer(() => endLeftovers(dataDir))
        const node = yield* restartable(
          "the daemon",
          startNode({
            control: api.url,
            key,
            id: "n1",
            dataDir,
            env: { ...quick, MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28650-28659" }
          })
        )
        yield* nodeIs(api, "n1", true)
        const stream = yield* subscribe(api)
        const [runsOn, ends, orphaned] = yield* Effect.all(
          [
            running(api, "kept"),
            running(api, "kept", { run: "manual" }),
            running(api, "kept", { run: "manual" })
          ],
          { concurrency: "unbounded" }
        )
        const before = yield* mainProcess(dataDir, runsOn)
        yield* node.killed.inject
        const killedAt = new Date().toISOString()
        assert.deepStrictEqual(yield* mainProcess(dataDir, runsOn), before)
        yield* end(dataDir, ends, mainProcess)
        // Without the shim, the exit of this server is not recorded: it ended with its machine, and is no crash.
        yield* end(dataDir, orphaned, shimProcess)
        yield* end(dataDir, orphaned, mainProcess)
        yield* eventually(
          Effect.sync(() => new Set(serverProcesses(dataDir).map(({ server }) => server))),
          (servers) => servers.size === 1
        )
        yield* node.killed.heal
        yield* eventsAre(stream, ends, [...up, "crash signal: killed", "offline"])
        yield* eventsAre(stream, orphaned, [...up, "offline"])
        yield* eventually(commands(api, runsOn, "again"), ({ status }) => status === 204)
        yield* logsHave(api, runsOn, "got again ")
        assert.deepStrictEqual(yield* mainProcess(dataDir, runsOn), before)
        assert.deepStrictEqual(stream.of(runsOn), up)
        const log = (yield* expectStatus(api, 200, "GET", `/api/servers/${runsOn}/logs?include=times`)).json
        assert.deepStrictEqual(
          log.data.map((line: string, at: number) => [line, log.times[at] > killedAt]),
          [
            ["ready", false],
            ["got again ", true]
          ]
        )
        const listed = (yield* expectStatus(api, 200, "GET", "/api/servers?include=status,limits")).json
        assert.deepStrictEqual(processProblems(listed, serverProcesses(dataDir)), [])
        const { journal, records } = yield* readDatabase(api.dataDir)
        assert.deepStrictEqual(journalProblems(journal, records), [])
      }).pipe(Effect.scoped),
    60_000
  )
})

const end = (dataDir: string, id: string, find: typeof mainProcess) =>
  Effect.map(find(dataDir, id), (found) => {
    assert.isDefined(found)
    if (found !== undefined) process.kill(found.pid, "SIGKILL")
  })
