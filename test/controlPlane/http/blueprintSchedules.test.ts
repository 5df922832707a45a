import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, definitions, softwareFile } from "../../support/definitions.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { startService } from "../../support/Service.ts"
import { expectStatus, installed, running } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { assertError } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

const YEARLY = "0 0 1 1 *"
const nightly = { name: "nightly", cron: YEARLY, steps: [{ command: ["from the blueprint"] }] }
const weekly = { name: "weekly", cron: "0 5 * * MON", steps: [{ wait: 1 }] }
const endless = { name: "endless", cron: YEARLY, steps: [{ wait: 3600 }] }

const fileOf = (schedules: ReadonlyArray<object>) =>
  blueprintFile("timed", "game", { save: true, rest: { schedules } })

const start = Effect.gen(function* () {
  const folders = yield* definitions({
    software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
    blueprints: { "timed.yml": fileOf([nightly, weekly]), "other.yml": blueprintFile("other", "game") }
  })
  const dataDir = yield* temporaryFolder
  const api = yield* startService({ dataDir, env: folders.env })
  const reload = (schedules: ReadonlyArray<object>) =>
    Effect.gen(function* () {
      writeFileSync(join(folders.blueprints, "timed.yml"), fileOf(schedules))
      return yield* api.request("POST", "/api/blueprints/reload")
    })
  return { api, dataDir, folders, reload }
})

type Api = Effect.Success<typeof start>["api"]

interface Listed {
  readonly id: string
  readonly name: string
  readonly enabled: boolean
  readonly next_at?: string
}

const schedulesOf = (api: Api, query = "") =>
  Effect.map(
    expectStatus(api, 200, "GET", `/api/schedules${query}`),
    ({ json }): ReadonlyArray<Listed> =>
      [...json].toSorted((one: Listed, other: Listed) => (one.name < other.name ? -1 : 1))
  )

const named = (api: Api, ...names: ReadonlyArray<string>) =>
  eventually(schedulesOf(api), (all) => all.map(({ name }) => name).join() === names.join())

const over = (api: Api, run: string) =>
  eventually(
    Effect.map(expectStatus(api, 200, "GET", `/api/runs/${run}`), ({ json }) => json),
    ({ state }) => state !== "running"
  )

describe("spec 13.7: schedules of blueprints", () => {
  it.live(
    "are listed with their source and defaults, run for the servers of the blueprint, and only the file changes them",
    () =>
      Effect.gen(function* () {
        const { api, folders } = yield* start
        const [first, second] = yield* named(api, "nightly", "weekly")
        const { json } = yield* expectStatus(api, 200, "GET", `/api/schedules/${first?.id}`)
        const { created_at: _, id, next_at, ...rest } = json
        assert.deepStrictEqual(rest, {
          ...nightly,
          ...{ selector: { blueprint_id: "timed" }, source: "blueprint", timezone: "UTC", enabled: true },
          ...{
            missed: "skip",
            catch_up: 3600,
            overlap: "skip",
            max_parallel: 5,
            stagger: 0,
            on_failure: "stop"
          }
        })
        assert.match(next_at, /-01-01T00:00:00\.000Z$/)
        const view = (yield* expectStatus(api, 200, "GET", "/api/blueprints/timed")).json
        assert.deepInclude(view.schedules[1], weekly)
        const body = { name: "own", cron: YEARLY, selector: { blueprint_id: "timed" }, steps: [{ wait: 1 }] }
        const own = yield* expectStatus(api, 201, "POST", "/api/schedules", { body })
        assert.strictEqual(own.json.source, "api")
        for (const [method, change] of [["PATCH", { body: { enabled: false } }], ["DELETE"]] as const) {
          const { hint } = assertError(
            yield* api.request(method, `/api/schedules/${id}`, change),
            409,
            `schedule ${id} is \`nightly\` of blueprint timed`
          )
          assert.match(hint ?? "", /reload.*\{"schedules":\{"nightly":null\}\}/)
        }
        const server = yield* running(api, "timed")
        yield* running(api, "other")
        const { json: begun } = yield* expectStatus(api, 202, "POST", `/api/schedules/${id}/run`)
        const run = yield* over(api, begun.id)
        assert.deepStrictEqual(run.servers, { [server]: { state: "done", step: 1 } })
        const noCommands = yield* keyed("Operator", { allow: ["schedules"] }).pipe(
          Effect.provideService(Muster, { ...api, folders })
        )
        assertError(yield* noCommands.request("POST", `/api/schedules/${id}/run`), 403)
        yield* expectStatus(noCommands, 202, "POST", `/api/schedules/${second?.id}/run`)
      }).pipe(Effect.scoped),
    120_000
  )

  it.live(
    "a server leaves one out with an override, from its creation or a change on, without an upgrade",
    () =>
      Effect.gen(function* () {
        const { api } = yield* start
        const [first] = yield* named(api, "nightly", "weekly")
        const overrides = { schedules: { nightly: null } }
        const without = yield* installed(api, "timed", { overrides })
        const server = yield* running(api, "timed")
        const shown = (yield* expectStatus(api, 200, "GET", `/api/servers/${without}`)).json
        assert.deepStrictEqual(shown.overrides, overrides)
        const namesOf = (id: string) =>
          Effect.map(schedulesOf(api, `?server_id=${id}`), (all) => all.map(({ name }) => name))
        assert.deepStrictEqual(yield* namesOf(without), ["weekly"])
        assert.deepStrictEqual(yield* namesOf(server), ["nightly", "weekly"])
        const serversOfRun = Effect.gen(function* () {
          const { json } = yield* expectStatus(api, 202, "POST", `/api/schedules/${first?.id}/run`)
          return Object.keys((yield* over(api, json.id)).servers)
        })
        assert.deepStrictEqual(yield* serversOfRun, [server])
        const change = (schedules: object | null) =>
          expectStatus(api, 200, "PATCH", `/api/servers/${server}`, { body: { overrides: { schedules } } })
        yield* change({ weekly: null })
        assert.deepStrictEqual(yield* namesOf(server), ["nightly"])
        // A change replaces the whole field.
        const { json: changed } = yield* change({ nightly: null })
        assert.deepStrictEqual(changed.overrides, overrides)
        assert.deepStrictEqual(changed.pending, [])
        assert.deepStrictEqual(yield* namesOf(server), ["weekly"])
        assert.deepStrictEqual(yield* serversOfRun, [])
        const { json: back } = yield* change(null)
        assert.notProperty(back, "overrides")
        assert.deepStrictEqual(yield* serversOfRun, [server])
        const wrong = { overrides: { schedules: { nightly: true } } }
        assertError(yield* api.request("PATCH", `/api/servers/${server}`, { body: wrong }), 422)
      }).pipe(Effect.scoped),
    120_000
  )

  it.live(
    "a reload changes, adds and removes them; runs stay with the name; mistakes change nothing",
    () =>
      Effect.gen(function* () {
        const { api, reload } = yield* start
        const [first] = yield* named(api, "nightly", "weekly")
        yield* running(api, "timed")
        const { json: begun } = yield* expectStatus(api, 202, "POST", `/api/schedules/${first?.id}/run`)
        yield* over(api, begun.id)
        assertError(yield* reload([{ ...nightly, cron: "0 0 30 2 *" }]), 422)
        assert.lengthOf(yield* schedulesOf(api), 2)
        assert.strictEqual((yield* reload([{ ...nightly, enabled: false }, endless])).status, 200)
        const [added, changed] = yield* named(api, "endless", "nightly")
        assert.deepStrictEqual(
          [changed?.id, changed?.enabled, changed?.next_at],
          [first?.id, false, undefined]
        )
        const runs = yield* expectStatus(api, 200, "GET", `/api/schedules/${first?.id}/runs`)
        assert.strictEqual(runs.json[0].id, begun.id)
        const { json: long } = yield* expectStatus(api, 202, "POST", `/api/schedules/${added?.id}/run`)
        assert.strictEqual((yield* reload([])).status, 200)
        const [rest] = yield* named(api, "endless")
        assert.deepStrictEqual([rest?.enabled, rest?.next_at], [false, undefined])
        yield* expectStatus(api, 202, "POST", `/api/runs/${long.id}/cancel`)
        yield* over(api, long.id)
        yield* reload([])
        yield* named(api)
        assertError(yield* api.request("GET", `/api/runs/${begun.id}`), 404)
      }).pipe(Effect.scoped),
    120_000
  )

  it.live(
    "after kill -9 the service has the same ones, also with a file that it cannot read",
    () =>
      Effect.gen(function* () {
        const { api, dataDir, folders } = yield* start
        const before = yield* named(api, "nightly", "weekly")
        yield* api.kill("SIGKILL")
        writeFileSync(join(folders.blueprints, "timed.yml"), "blueprint: [")
        const again = yield* startService({ dataDir, env: folders.env })
        yield* expectStatus(again, 200, "GET", "/api/blueprints")
        const own = { name: "own", cron: YEARLY, selector: { blueprint_id: "timed" }, steps: [{ wait: 1 }] }
        const { json } = yield* expectStatus(again, 201, "POST", "/api/schedules", { body: own })
        // The leader is at work.
        yield* over(again, (yield* expectStatus(again, 202, "POST", `/api/schedules/${json.id}/run`)).json.id)
        assert.deepStrictEqual(
          (yield* schedulesOf(again)).filter(({ name }) => name !== "own"),
          before
        )
      }).pipe(Effect.scoped),
    120_000
  )
})
