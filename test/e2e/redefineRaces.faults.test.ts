import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { readDatabase } from "../support/database.ts"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { eventually } from "../support/eventually.ts"
import { journalProblems, processProblems } from "../support/invariants.ts"
import { endLeftovers, serverProcesses } from "../support/processes.ts"
import { startService } from "../support/Service.ts"
import { becomes, expectStatus, installed, power, powered, running } from "../support/servers.ts"
import { fileOf } from "./lifecycle/setup.ts"

/** Adds its value to its own file at each start. */
const server = `echo "$VALUE" >> runs.txt
echo ready
while read -r what; do test "$what" = stop && exit 0; done`

const files = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": server } }) },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}

const ROUNDS = 6

describe("spec 3.12: a change at the same time as another request", () => {
  it.live(
    "start, stop, restart, kill and delete: each is done or refused, and the next start has the newest definition",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const api = yield* startService({ env: { ...env, MUSTER_OVERCOMMIT_MEMORY: "1000" } })
        yield* Effect.addFinalizer(() => endLeftovers(api.dataDir))
        const runs = (id: string) => {
          const path = fileOf(api, id, "runs.txt")
          return existsSync(path) ? readFileSync(path, "utf8").trim().split("\n") : []
        }
        const patch = (id: string, VALUE: string) =>
          api.request("PATCH", `/api/servers/${id}`, { body: { overrides: { env: { VALUE } } } })

        /** Changes a server twice during a power action, and once more before its next start. */
        const withPower = Effect.fnUntraced(function* (action: string) {
          const id = yield* action === "start" ? installed(api, "kept") : running(api, "kept")
          for (let round = 0; round < ROUNDS; round++) {
            const value = `${action}-${round}`
            const [first, acted, second] = yield* Effect.all(
              [patch(id, `${value}-first`), power(api, id, action), patch(id, `${value}-second`)],
              { concurrency: "unbounded" }
            )
            assert.deepStrictEqual([first.status, second.status], [200, 200])
            assert.include([200, 409], acted.status, acted.text)
            const last = yield* patch(id, value)
            assert.strictEqual(last.status, 200, last.text)
            yield* eventually(power(api, id, "stop"), ({ status }) => status === 200)
            yield* becomes(api, id, "offline")
            yield* powered(api, id, "start")
            yield* becomes(api, id, "running")
            assert.strictEqual(runs(id).at(-1), value)
            if (action !== "start") continue
            yield* powered(api, id, "stop")
            yield* becomes(api, id, "offline")
          }
          const shown = yield* expectStatus(api, 200, "GET", `/api/servers/${id}?include=definition`)
          assert.deepStrictEqual(shown.json.pending, [])
        })

        const withDelete = Effect.gen(function* () {
          for (let round = 0; round < ROUNDS; round++) {
            const id = yield* round % 2 === 0 ? installed(api, "kept") : running(api, "kept")
            const [patched, deleted] = yield* Effect.all(
              [patch(id, "late"), api.request("DELETE", `/api/servers/${id}`)],
              { concurrency: "unbounded" }
            )
            assert.include([200, 404, 409], patched.status, patched.text)
            assert.strictEqual(deleted.status, 200, deleted.text)
            assert.strictEqual((yield* patch(id, "later")).status, 404)
            yield* eventually(
              () => existsSync(join(api.dataDir, "node", "servers", id)),
              (there) => !there
            )
          }
        })

        yield* Effect.all([...["start", "stop", "restart", "kill"].map(withPower), withDelete], {
          concurrency: "unbounded",
          discard: true
        })
        const listed = (yield* expectStatus(api, 200, "GET", "/api/servers?include=status,limits")).json
        assert.strictEqual(listed.length, 4)
        assert.deepStrictEqual(processProblems(listed, serverProcesses(api.dataDir)), [])
        const { journal, ports, records } = yield* readDatabase(api.dataDir)
        assert.deepStrictEqual(journalProblems(journal, records), [])
        assert.strictEqual(ports.length, 4)
        assert.isTrue(records.every(({ redefinition }) => redefinition?.delivered === true))
      }).pipe(Effect.scoped),
    180_000
  )
})
