import { globSync, truncateSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it, layer } from "@effect/vitest"
import { Effect } from "effect"
import { withXfs, xfsDisk } from "../../daemon/files/scene.ts"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../../support/definitions.ts"
import { subscribe } from "../../support/events.ts"
import { eventually, until } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { endLeftovers } from "../../support/processes.ts"
import { startService } from "../../support/Service.ts"
import { becomes, expectStatus, logsOf, running } from "../../support/servers.ts"
import { assertError, options } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

/** The server prints `got save-all` as soon as it reads the line. */
const quiesce = {
  before: ["save-off", "save-all flush"],
  until: "regex:got save-all",
  after: ["save-on"]
}
const files = { "server.sh": consoleServer }
const games = {
  software: {
    "plain.yml": softwareFile("plain", { files }),
    "saving.yml": softwareFile("saving", { files, extra: { quiesce } })
  },
  blueprints: {
    "plain.yml": blueprintFile("plain", "plain"),
    "saving.yml": blueprintFile("saving", "saving"),
    "passing.yml": blueprintFile("passing", "saving", { save: false })
  }
}
const service = Muster.layer(games, { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:32400-32499" })

/** Backs up a server, and returns the backup. */
const backedUp = Effect.fnUntraced(function* (server: string, body: object = {}) {
  const api = yield* Muster
  const path = `/api/servers/${server}/backups`
  const headers = { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
  const { json } = yield* expectStatus(api, 202, "POST", path, { body, headers })
  assert.strictEqual(json.state, "done", json.reason)
  return (yield* expectStatus(api, 200, "GET", path)).json[0]
})

/** The lines that a server has got. */
const linesOf = Effect.fnUntraced(function* (server: string) {
  const api = yield* Muster
  const lines = yield* logsOf(api, server)
  return lines.filter((line) => line.startsWith("got ")).map((line) => line.slice("got ".length).trim())
})

layer(service, options)("backups of servers that run", (it) => {
  describe("spec 12.10: how a server holds still", () => {
    it.effect("auto follows the software: commands in order, states, consistency and time", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const { json } = yield* expectStatus(api, 200, "GET", "/api/software/saving")
        assert.deepInclude(json.quiesce, { ...quiesce, timeout: 60, on_failure: "continue" })
        const server = yield* running(api, "saving")
        const seen = yield* subscribe(api, `/api/events?topics=backup&server_id=${server}`)
        const backup = yield* backedUp(server)
        assert.strictEqual(backup.consistency, "quiesced")
        assert.isAbove(backup.quiesced_ms, 0)
        const lines = yield* eventually(linesOf(server), (now) => now.includes("save-on"))
        assert.deepStrictEqual(lines, ["save-off", "save-all flush", "save-on"])
        const events = yield* eventually(
          Effect.sync(() => seen.events()),
          (all) => all.length >= 4
        )
        assert.deepStrictEqual(
          events.map((event) => (event.Topic === "backup" ? event.Data.payload.state : "")),
          ["queued", "quiescing", "copying", "done"]
        )
        yield* becomes(api, server, "running")
      })
    )

    it.effect("auto of software without quiesce, and none, let the server run on", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const plain = yield* backedUp(yield* running(api, "plain"))
        assert.strictEqual(plain.consistency, "crash")
        assert.notProperty(plain, "quiesced_ms")
        const server = yield* running(api, "saving")
        assert.strictEqual((yield* backedUp(server, { quiesce: "none" })).consistency, "crash")
        assert.deepStrictEqual(yield* linesOf(server), [])
      })
    )

    it.effect("pause freezes the server, stop stops it, and both let it run afterwards", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* running(api, "plain")
        const seen = yield* subscribe(api, `/api/events?topics=status&server_id=${server}`)
        assert.strictEqual((yield* backedUp(server, { quiesce: "pause" })).consistency, "paused")
        assert.deepStrictEqual(seen.events(), [])
        assert.strictEqual((yield* backedUp(server, { quiesce: "stop" })).consistency, "stopped")
        const statuses = yield* eventually(
          Effect.sync(() =>
            seen.events().map((event) => (event.Topic === "status" ? event.Data.payload : ""))
          ),
          (all) => all.at(-1) === "running"
        )
        assert.deepStrictEqual([...new Set(statuses)], ["stopping", "offline", "starting", "running"])
      })
    )

    it.effect("stop of a server that is not saved is refused, and so are other values", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* running(api, "passing")
        const path = `/api/servers/${server}/backups`
        assertError(
          yield* api.request("POST", path, { body: { quiesce: "stop" } }),
          409,
          `server ${server} is not saved: a stop deletes it`
        )
        assertError(yield* api.request("POST", path, { body: { quiesce: "freeze" } }), 422)
        assert.strictEqual((yield* backedUp(server)).consistency, "quiesced")
      })
    )

    it.effect("POST /api/backups takes it, too", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* running(api, "plain")
        yield* expectStatus(api, 200, "POST", "/api/backups", {
          body: { selector: { ids: [server] }, quiesce: "pause" }
        })
        const [backup] = yield* eventually(
          Effect.map(expectStatus(api, 200, "GET", `/api/backups?server_id=${server}`), ({ json }) => json),
          ([one]) => one?.state === "done"
        )
        assert.strictEqual(backup.consistency, "paused")
      })
    )
  })

  describe("spec 12.10: rights", () => {
    it.effect("stop and pause need the rights of these actions, also in the step of a schedule", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* running(api, "plain")
        const keeper = yield* keyed("Operator", { allow: ["backups", "schedules", "stop"] })
        for (const [mode, right] of [
          ["stop", "start"],
          ["pause", "pause"]
        ] as const) {
          assertError(
            yield* keeper.request("POST", `/api/servers/${server}/backups`, { body: { quiesce: mode } }),
            403,
            `the API key lacks: ${right}: body field quiesce needs it`
          )
          const body = {
            name: "nightly",
            server_id: server,
            cron: "0 4 * * *",
            steps: [{ backup: { quiesce: mode } }]
          }
          assertError(
            yield* keeper.request("POST", "/api/schedules", { body }),
            403,
            `step 1: the API key lacks: ${right}`
          )
        }
        yield* expectStatus(keeper, 202, "POST", `/api/servers/${server}/backups`, { body: {} })
      })
    )
  })
})

/** Bytes that the node reads in several seconds. */
const HOLES = 256 * 1024 ** 2
describe.runIf(withXfs)(
  "spec 12.4: a server that is deleted with force while copies of its files are packed",
  () =>
    it.live(
      "its backup fails, and leaves no part",
      () =>
        Effect.gen(function* () {
          const { env } = yield* definitions(games)
          const dataDir = join(yield* xfsDisk, "data")
          const api = yield* startService({ dataDir, env: { ...env, MUSTER_BACKUP_RATE: "16MiB" } })
          yield* Effect.addFinalizer(() => endLeftovers(dataDir))
          const server = yield* running(api, "saving")
          const [folder = ""] = globSync(join(dataDir, "**", server, "files"))
          const holes = join(folder, "holes.bin")
          writeFileSync(holes, "")
          truncateSync(holes, HOLES)
          const path = `/api/servers/${server}/backups`
          const { json: begun } = yield* expectStatus(api, 202, "POST", path, { body: {} })
          yield* eventually(logsOf(api, server), (lines) =>
            lines.some((line) => line.includes("got save-on"))
          )
          const [{ id }] = (yield* expectStatus(api, 200, "GET", path)).json
          const parts = () => globSync(join(dataDir, "**/backups", id, "*"))
          yield* until("its first part is written", () => parts().length > 0)
          yield* api.request("DELETE", `/api/servers/${server}?force=true`)
          yield* eventually(
            expectStatus(api, 200, "GET", `/api/operations/${begun.id}`),
            ({ json }) => json.state === "cancelled"
          )
          assert.strictEqual(
            (yield* expectStatus(api, 200, "GET", `/api/backups/${id}`)).json.state,
            "failed"
          )
          yield* until("no part is left", () => parts().length === 0)
        }),
      60_000
    )
)
