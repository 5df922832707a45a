import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, softwareFile } from "../../support/definitions.ts"
import { subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { expectStatus, installed } from "../../support/servers.ts"
import { filesOf } from "./support/files.ts"
import { assertError, options } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

/** Crashes if the world is broken. */
const server = `[ "$(cat world 2>/dev/null)" = broken ] && exit 3\n${consoleServer}`

const definitions = {
  software: {
    "game.yml": softwareFile("game", { files: { "server.sh": server } }),
    "silent.yml": softwareFile("silent", {
      files: { "server.sh": consoleServer },
      online: "never said",
      extra: { "start-timeout": 3600 }
    })
  },
  blueprints: {
    "game.yml": blueprintFile("game", "game", {
      save: false,
      rest: { schedules: [{ name: "nightly", cron: "0 4 * * *", steps: [{ wait: 1 }] }] }
    }),
    "silent.yml": blueprintFile("silent", "silent")
  }
}

type Api = Pick<Muster["Service"], "request" | "key">

const waiting = (api: Api) => ({ authorization: `Bearer ${api.key}`, prefer: "wait=60" })

const backedUp = Effect.fnUntraced(function* (api: Api, id: string) {
  const path = `/api/servers/${id}/backups`
  yield* expectStatus(api, 202, "POST", path, { body: {}, headers: waiting(api) })
  const [backup] = (yield* expectStatus(api, 200, "GET", path)).json
  return backup
})

const drilled = (api: Api, backup: string, body: object = {}) =>
  Effect.map(
    expectStatus(api, 202, "POST", `/api/backups/${backup}/drill`, { body, headers: waiting(api) }),
    ({ json }) => json
  )

const serversOf = (api: Api) =>
  Effect.map(expectStatus(api, 200, "GET", "/api/servers?include=name"), ({ json }) =>
    json.map(({ name }: { readonly name?: string }) => name ?? "")
  )

/** Waits until no server of a drill is left, nor one that could be given back. */
const noDrill = (api: Api) =>
  Effect.gen(function* () {
    yield* eventually(serversOf(api), (names) => !names.some((name: string) => name.startsWith("drill of")))
    const { json } = yield* expectStatus(api, 200, "GET", "/api/servers?deleted=true&include=name")
    assert.notInclude(JSON.stringify(json), "drill of")
  })

layer(Muster.layer(definitions), options)("drills", (it) => {
  describe("spec 12.11: drills of backups", () => {
    it.effect(
      "a server of the backup runs and is deleted for good; the backup has the result, and an event",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* installed(api, "game", { name: "lobby", labels: { team: "a" } })
          yield* filesOf(api, id).put("/world", "whole")
          const backup = yield* backedUp(api, id)
          assert.notProperty(backup, "drill")
          const seen = yield* subscribe(api, `/api/events?topics=backup,status&server_id=${id}`)
          const created = yield* subscribe(api, "/api/events?topics=status")
          const operation = yield* drilled(api, backup.id)
          assert.deepInclude(operation, { kind: "backup.drill", state: "done" })
          assert.notStrictEqual(operation.server_id, id)
          yield* noDrill(api)
          const { json } = yield* expectStatus(api, 200, "GET", `/api/backups/${backup.id}`)
          assert.strictEqual(json.drill.ok, true)
          assert.isAtLeast(Date.parse(json.drill.at), Date.parse(backup.finished_at))
          const events = yield* eventually(
            Effect.sync(() => seen.events().filter(({ Topic }) => Topic === "backup")),
            (all) => all.length > 0
          )
          assert.lengthOf(events, 1)
          assert.include(JSON.stringify(events[0]), '"ok":true')
          const statuses = created
            .events()
            .flatMap(({ Data, Topic }) =>
              Topic === "status" && Data.server_id === operation.server_id ? [Data.payload] : []
            )
          assert.include(statuses, "running")
          assert.strictEqual(
            (yield* expectStatus(api, 200, "GET", `/api/servers/${id}/status`)).json.status,
            "offline"
          )
          const [entry] = (yield* expectStatus(api, 200, "GET", "/api/audit?action=backup.drill&limit=1"))
            .json
          assert.deepInclude(entry.object, { kind: "backup", id: backup.id })
          assert.deepStrictEqual(entry.changes, [`server ${operation.server_id}`])
        })
    )

    it.effect(
      "the server has neither the labels nor the schedules, and goes when the drill is cancelled",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* installed(api, "silent", { labels: { team: "a" } })
          const backup = yield* backedUp(api, id)
          const begun = yield* expectStatus(api, 202, "POST", `/api/backups/${backup.id}/drill`, { body: {} })
          const path = `/api/servers/${begun.json.server_id}`
          const shownPath = `${path}?include=status,name,labels,save,expires_at`
          yield* eventually(
            Effect.map(expectStatus(api, 200, "GET", shownPath), ({ json }) => json),
            ({ status }) => status === "starting"
          )
          const { json: shown } = yield* expectStatus(api, 200, "GET", shownPath)
          assert.deepInclude(shown, { name: `drill of ${id}`, labels: {}, save: true })
          assert.isString(shown.expires_at)
          assertError(
            yield* api.request("DELETE", path),
            409,
            `operation ${begun.json.id} (backup.drill) works on the server: ${begun.json.server_id}`
          )
          assertError(
            yield* api.request("DELETE", `/api/backups/${backup.id}`),
            409,
            `operation ${begun.json.id} (backup.drill) reads the backup: ${backup.id}`
          )
          yield* expectStatus(api, 202, "DELETE", `/api/operations/${begun.json.id}`)
          yield* noDrill(api)
          const end = (yield* expectStatus(api, 200, "GET", `/api/operations/${begun.json.id}`)).json
          assert.deepInclude(end, { state: "cancelled", reason: "a caller has cancelled it" })
          assert.deepInclude((yield* expectStatus(api, 200, "GET", `/api/backups/${backup.id}`)).json.drill, {
            ok: false,
            reason: "a caller has cancelled it"
          })
          yield* expectStatus(api, 204, "DELETE", `/api/backups/${backup.id}`)
          const timed = yield* installed(api, "game")
          const other = yield* expectStatus(
            api,
            202,
            "POST",
            `/api/backups/${(yield* backedUp(api, timed)).id}/drill`,
            { body: {} }
          )
          const server = yield* api.request("GET", `/api/servers/${other.json.server_id}`)
          if (server.status === 200)
            assert.deepStrictEqual(server.json.overrides.schedules, { nightly: null })
          yield* noDrill(api)
        })
    )

    it.effect(
      "a backup whose server crashes fails the drill with the reason, also when its own was deleted",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* installed(api, "game", { name: "broken" })
          yield* filesOf(api, id).put("/world", "broken")
          const backup = yield* backedUp(api, id)
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}?purge=true`)
          const end = yield* drilled(api, backup.id)
          assert.strictEqual(end.state, "failed")
          assert.match(end.reason, /it crashed: .*3/)
          yield* noDrill(api)
          const { json } = yield* expectStatus(api, 200, "GET", `/api/backups/${backup.id}`)
          assert.deepInclude(json.drill, { ok: false, reason: end.reason })
          const metrics = (yield* api.request("GET", "/metrics")).text
          assert.match(metrics, /muster_operations_total\{kind="backup.drill",outcome="failed"\} 1/)
        })
    )

    it.effect("restore and create are needed, and a quota holds", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* installed(api, "game", { labels: { team: "drills" } })
        const backup = yield* backedUp(api, id)
        const path = `/api/backups/${backup.id}/drill`
        const lacking = yield* keyed("Operator", { allow: ["restore"] })
        assertError(yield* lacking.request("POST", path, { body: {} }), 403, "the API key lacks: create")
        const backups = yield* keyed("Operator", { allow: ["backups", "create"] })
        assertError(yield* backups.request("POST", path, { body: {} }), 403)
        const full = yield* keyed("Operator", { allow: ["restore", "create"], max_servers: 1 })
        yield* expectStatus(full, 202, "POST", "/api/servers", { body: { blueprint_id: "game" } })
        assertError(yield* full.request("POST", path, { body: {} }), 403)
        assertError(yield* api.request("POST", path, { body: { node_id: "none" } }), 404)
        assertError(yield* api.request("POST", "/api/backups/none/drill", { body: {} }), 404)
        const limited = yield* keyed("Operator", {
          allow: ["read", "restore", "create"],
          labels: { team: "drills" }
        })
        const end = yield* drilled(limited, backup.id)
        assert.strictEqual(end.state, "done", end.reason)
        yield* noDrill(api)
        // The server is deleted; the key still reads the operation that it began.
        const { json } = yield* expectStatus(limited, 200, "GET", `/api/operations/${end.id}`)
        assert.strictEqual(json.state, "done")
      })
    )
  })
})
