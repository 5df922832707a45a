import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { alone, freePort, nodeIs, nodeKey, startNode } from "../support/nodes.ts"
import { endLeftovers, serverProcesses } from "../support/processes.ts"
import { type Service, startService } from "../support/Service.ts"
import { becomes, expectStatus, power, powered, running } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

const runOf = (api: Service, id: string) =>
  Effect.map(expectStatus(api, 200, "GET", `/api/servers/${id}?include=status,run`), ({ json }) => json.run)

/** Kills every process of servers, as a power cut does, and gives their runs another boot of the machine. */
const cutPower = (dataDir: string, ids: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    for (const { pid } of serverProcesses(dataDir)) {
      try {
        process.kill(pid, "SIGKILL")
      } catch {} // it has ended with another
    }
    yield* eventually(
      Effect.sync(() => serverProcesses(dataDir).length),
      (left) => left === 0
    )
    for (const id of ids) {
      const path = join(dataDir, "node", "servers", id, "run.json")
      const record = JSON.parse(readFileSync(path, "utf8"))
      writeFileSync(path, `${JSON.stringify({ ...record, boot: "another boot" })}\n`)
    }
  })

describe("Operations, restart a node or its machine", () => {
  it.live(
    "embedded node: what ran runs again after SIGTERM and after a power cut, what was stopped does not",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const dataDir = join(yield* temporaryFolder, "data")
        yield* Effect.addFinalizer(() => endLeftovers(dataDir))
        const scope = yield* Effect.scope
        const start = Effect.gen(function* () {
          const own = yield* Scope.fork(scope)
          const service = yield* Scope.provide(
            startService({
              dataDir,
              env: { ...env, MUSTER_OVERCOMMIT_MEMORY: "1000", MUSTER_START_PARALLEL: "1" }
            }),
            own
          )
          return { service, close: Scope.close(own, Exit.void) }
        })
        const first = yield* start
        const api = first.service
        const one = yield* running(api, "kept")
        const two = yield* running(api, "kept", { run: "always", priority: 100 })
        const manual = yield* running(api, "kept", { run: "manual" })
        const stopped = yield* running(api, "kept")
        yield* powered(api, stopped, "stop")
        yield* becomes(api, stopped, "offline")
        const { stopped_by, ...rest } = yield* runOf(api, stopped)
        assert.deepStrictEqual(rest, { run: "unless_stopped" })
        assert.isAbove(stopped_by.length, 0)
        const always = (yield* expectStatus(api, 202, "POST", "/api/servers", {
          body: { blueprint_id: "kept", overrides: { run: "always" } }
        })).json.id
        yield* becomes(api, always, "running")
        yield* api.kill("SIGTERM")
        yield* first.close

        const second = yield* start
        for (const id of [one, two, always]) yield* becomes(second.service, id, "running")
        yield* becomes(second.service, manual, "offline")
        yield* becomes(second.service, stopped, "offline")
        assert.deepStrictEqual(yield* runOf(second.service, one), { run: "unless_stopped" })
        yield* second.service.kill("SIGKILL")
        yield* second.close
        yield* cutPower(dataDir, [one, two, always])

        const third = yield* start
        for (const id of [one, two, always]) yield* becomes(third.service, id, "running")
        yield* becomes(third.service, stopped, "offline")
        const { json } = yield* expectStatus(third.service, 200, "GET", "/api/crashes")
        assert.deepStrictEqual(json, [], "an end with the machine is no crash")
      }).pipe(Effect.scoped)
  )

  it.live("a node of its own: a stop holds while the node is away, and both sides may be killed", () =>
    Effect.gen(function* () {
      const { env } = yield* definitions(files)
      const dataDir = join(yield* temporaryFolder, "node")
      const controlDir = join(yield* temporaryFolder, "control")
      yield* Effect.addFinalizer(() => endLeftovers(dataDir))
      const scope = yield* Effect.scope
      const port = yield* freePort
      const control = Effect.gen(function* () {
        const own = yield* Scope.fork(scope)
        const service = yield* Scope.provide(
          startService({
            dataDir: controlDir,
            env: { ...alone, ...env, MUSTER_PORT: String(port) }
          }),
          own
        )
        return { service, close: Scope.close(own, Exit.void) }
      })
      let now = yield* control
      const { key } = yield* nodeKey(now.service)
      const node = Effect.gen(function* () {
        const own = yield* Scope.fork(scope)
        const started = yield* Scope.provide(
          startNode({
            control: `http://127.0.0.1:${port}`,
            key,
            id: "n",
            dataDir,
            env: { MUSTER_NODE_HEARTBEAT: "1", MUSTER_NODE_ALLOCATIONS: "127.0.0.1:28600-28620" }
          }),
          own
        )
        return { node: started, close: Scope.close(own, Exit.void) }
      })
      let daemon = yield* node
      yield* nodeIs(now.service, "n", true)
      const stays = yield* running(now.service, "kept")
      const stops = yield* running(now.service, "kept")
      yield* daemon.node.kill("SIGKILL")
      yield* daemon.close
      yield* cutPower(dataDir, [stays, stops])
      yield* powered(now.service, stops, "stop")
      assert.strictEqual((yield* power(now.service, stays, "start")).status, 503)
      assert.property(yield* runOf(now.service, stops), "stopped_by")
      yield* now.service.kill("SIGKILL")
      yield* now.close
      now = yield* control
      daemon = yield* node
      yield* becomes(now.service, stays, "running")
      yield* becomes(now.service, stops, "offline")
      assert.property(yield* runOf(now.service, stops), "stopped_by")
      yield* powered(now.service, stops, "start")
      yield* becomes(now.service, stops, "running")
      assert.deepStrictEqual(yield* runOf(now.service, stops), { run: "unless_stopped" })

      yield* daemon.node.kill("SIGTERM")
      yield* daemon.close
      yield* becomes(now.service, stays, "offline")
      assert.deepStrictEqual(
        [(yield* runOf(now.service, stays)).waiting, (yield* runOf(now.service, stops)).waiting],
        [1, 2]
      )
      yield* now.service.kill("SIGTERM")
      yield* now.close
      // The daemon starts its servers although the control plane is away.
      daemon = yield* node
      yield* eventually(
        Effect.sync(() => new Set(serverProcesses(dataDir).map(({ server }) => server)).size),
        (up) => up === 2
      )
      now = yield* control
      for (const id of [stays, stops]) yield* becomes(now.service, id, "running")
      yield* daemon.close
    }).pipe(Effect.scoped)
  )
})
