import { readdirSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit, Scope } from "effect"
import { storeOperation } from "../support/database.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { endLeftovers } from "../support/processes.ts"
import { startService } from "../support/Service.ts"
import { expectStatus, installed } from "../support/servers.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

const FOLDERS = 4_000

describe("spec 11.4: an operation whose service and daemon are killed", () => {
  it.live("continues after each kill, and makes every change", () =>
    Effect.gen(function* () {
      const { env } = yield* definitions(files)
      const dataDir = join(yield* temporaryFolder, "data")
      yield* Effect.addFinalizer(() => endLeftovers(dataDir))
      const scope = yield* Effect.scope
      const start = Effect.gen(function* () {
        const own = yield* Scope.fork(scope)
        const service = yield* Scope.provide(startService({ dataDir, env }), own)
        const kill = Effect.andThen(service.kill("SIGKILL"), Scope.close(own, Exit.void))
        return { ...service, kill }
      })
      const first = yield* start
      const server = yield* installed(first, "kept")
      yield* first.kill
      const changes = Array.from({ length: FOLDERS }, (_, n) => ({ kind: "folder", path: `/made/f${n}` }))
      const request = JSON.stringify({ kind: "change", changes })
      const operation = yield* storeOperation({ dataDir }, server, { request, created_by: "cli" })
      const path = `/api/operations/${operation}`
      const read = (api: Parameters<typeof expectStatus>[0]) =>
        Effect.map(expectStatus(api, 200, "GET", path), ({ json }) => json)
      let reached = 0
      for (let round = 0; round < 2; round++) {
        const killed = yield* start
        const { progress, state } = yield* eventually(
          read(killed),
          ({ progress, state }) => state === "running" && (progress?.done ?? 0) > reached
        )
        assert.strictEqual(state, "running")
        reached = progress.done
        yield* killed.kill
      }
      const last = yield* start
      const end = yield* eventually(read(last), ({ state }) => state !== "running")
      assert.deepInclude(end, { state: "done", progress: { done: FOLDERS, total: FOLDERS, unit: "files" } })
      const folder = join(dataDir, "node", "servers", server, "files", "made")
      assert.strictEqual(readdirSync(folder).length, FOLDERS)
    }).pipe(Effect.scoped)
  )
})
