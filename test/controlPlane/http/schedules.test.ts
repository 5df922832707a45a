import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { expectStatus, installed, running } from "../../support/servers.ts"
import { assertError, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

type Api = Pick<Muster["Service"], "request" | "key">

const body = (change: object = {}) => ({
  name: "nightly",
  cron: "0 4 * * *",
  timezone: "Europe/Berlin",
  steps: [{ power: "restart" }],
  ...change
})

const create = (api: Api, change: object) =>
  Effect.map(
    expectStatus(api, 201, "POST", "/api/schedules", { body: body(change) }),
    ({ json }): { readonly id: string } => json
  )

const over = (api: Api, run: string) =>
  eventually(
    Effect.map(expectStatus(api, 200, "GET", `/api/runs/${run}`), ({ json }) => json),
    ({ state }) => state !== "running"
  )

layer(service(), options)("schedules", (it) => {
  describe("spec 13.1: the routes", () => {
    it.effect("a schedule is created, shown, listed by its servers, changed and deleted", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "kept", { labels: { team: "a" } })
        const other = yield* installed(api, "kept")
        const made = yield* expectStatus(api, 201, "POST", "/api/schedules", {
          body: body({ selector: { labels: { team: "a" } } })
        })
        const { created_at, id, next_at, ...rest } = made.json
        assert.strictEqual(made.headers.get("location"), `/api/schedules/${id}`)
        assert.match(next_at, /T0[23]:00:00\.000Z$/)
        assert.isString(created_at)
        assert.deepStrictEqual(rest, {
          ...body({ selector: { labels: { team: "a" } } }),
          ...{ enabled: true, missed: "skip", catch_up: 3600, overlap: "skip" },
          ...{ source: "api", max_parallel: 5, stagger: 0, on_failure: "stop", created_by: rest.created_by }
        })
        const own = yield* create(api, { server_id: server })
        const ids = (query: string) =>
          Effect.map(expectStatus(api, 200, "GET", `/api/schedules${query}`), ({ json }) =>
            json.map((one: { readonly id: string }) => one.id)
          )
        assert.deepStrictEqual(yield* ids(`?server_id=${server}`), [own.id, id])
        assert.deepStrictEqual(yield* ids(`?server_id=${other}`), [])
        assert.deepStrictEqual(yield* ids(`?server_id=${server}&limit=1`), [own.id])
        const change = { enabled: false, cron: "0 5 * * *", server_id: other, only_if: { status: "running" } }
        const { json: changed } = yield* expectStatus(api, 200, "PATCH", `/api/schedules/${id}`, {
          body: change
        })
        assert.deepInclude(changed, change)
        assert.notProperty(changed, "selector")
        assert.notProperty(changed, "next_at")
        const { json: back } = yield* expectStatus(api, 200, "PATCH", `/api/schedules/${id}`, {
          body: { enabled: true, only_if: null }
        })
        assert.notProperty(back, "only_if")
        assert.isString(back.next_at)
        yield* expectStatus(api, 200, "DELETE", `/api/schedules/${id}`)
        assertError(yield* api.request("GET", `/api/schedules/${id}`), 404, `schedule not found: ${id}`)
        const [entry] = (yield* expectStatus(api, 200, "GET", "/api/audit?limit=1&result=ok")).json
        assert.deepInclude(entry, { action: "schedule.delete", object: { kind: "schedule", id } })
      })
    )

    it.effect(
      "a plan has the next times with the clocks, the servers and the problems, and stores nothing",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const server = yield* installed(api, "kept", { labels: { plan: "yes" } })
          const count = Effect.map(
            expectStatus(api, 200, "GET", "/api/schedules?limit=100"),
            ({ json }) => json.length
          )
          const before = yield* count
          const { json } = yield* expectStatus(api, 200, "POST", "/api/schedules?dry_run=true", {
            body: body({
              selector: { labels: { plan: "yes" } },
              cron: "30 2 * 3,10 SUN",
              steps: [{ webhook: "none" }]
            })
          })
          assert.lengthOf(json.times, 10)
          const notes = json.times.filter(({ note }: { readonly note?: string }) => note !== undefined)
          assert.isAbove(notes.length, 1)
          assert.match(notes[0].note, /^the clocks go (forward|back) by 60 min/)
          assert.deepStrictEqual([json.servers_total, json.servers], [1, [server]])
          assert.deepStrictEqual(json.problems, ["step 1: no webhook has this id: none"])
          assert.strictEqual(yield* count, before)
        })
    )

    it.effect("times, steps and servers that cannot be used are refused with a hint", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "kept")
        for (const [change, detail] of [
          [{ cron: "0 0 4 * * *" }, /body field cron: it has six fields/],
          [{ cron: "0 0 30 2 *" }, /it has no next time/],
          [{ timezone: "Europe/Atlantis" }, /body field timezone: no time zone/],
          [{ steps: [] }, /steps/],
          [{ steps: Array.from({ length: 21 }, () => ({ wait: 1 })) }, /steps/],
          [{ steps: [{ wait: 86_400 }, { wait: 1 }] }, /at most 24 h/],
          [{ steps: [{ wait: 1, command: ["x"] }] }, /steps/],
          [{ steps: [{ wait_for: "installed", timeout: 5 }] }, /steps/],
          [{ selector: { labels: { a: "b" } } }, /either server_id or selector/]
        ] as const) {
          const answer = yield* api.request("POST", "/api/schedules", {
            body: body({ server_id: server, ...change })
          })
          assertError(answer, 422)
          assert.match(answer.json.detail, detail)
          if ("timezone" in change) assert.include(answer.json.hint, "IANA")
        }
        assertError(
          yield* api.request("POST", "/api/schedules", { body: body({ server_id: "nothing" }) }),
          404
        )
        const unknown = { server_id: server, steps: [{ wait: 1 }, { backup: { target: "nosuch" } }] }
        const detail = "body field steps: step 2: target not found: nosuch"
        for (const query of ["", "?dry_run=true"])
          assertError(
            yield* api.request("POST", `/api/schedules${query}`, { body: body(unknown) }),
            422,
            detail
          )
        const target = { id: "nas", type: "node", folder: "/srv/nas" }
        yield* expectStatus(api, 201, "POST", "/api/backup-targets", { body: target })
        const { id } = yield* create(api, { server_id: server, steps: [{ backup: { target: "nas" } }] })
        yield* expectStatus(api, 204, "DELETE", "/api/backup-targets/nas")
        const change = (to: object) => api.request("PATCH", `/api/schedules/${id}`, { body: to })
        assertError(yield* change({ steps: unknown.steps }), 422, detail)
        assert.strictEqual((yield* change({ enabled: false })).json.enabled, false)
        for (let n = 1; n < 10; n++) yield* create(api, { server_id: server })
        const eleventh = yield* api.request("POST", "/api/schedules", { body: body({ server_id: server }) })
        assertError(eleventh, 409, `server ${server} has 10 schedules`)
      })
    )
  })

  describe("spec 13.2: runs", () => {
    it.effect(
      "a run by a caller goes through the steps, is listed, and writes to the console of the server",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const server = yield* running(api, "kept")
          const { id } = yield* create(api, {
            server_id: server,
            steps: [
              { command: ["hello from the schedule"] },
              { power: "restart" },
              { wait_for: "running", timeout: 60 }
            ]
          })
          const { json: begun } = yield* expectStatus(api, 202, "POST", `/api/schedules/${id}/run`)
          assert.deepInclude(begun, { schedule_id: id, state: "running" })
          const end = yield* over(api, begun.id)
          assert.deepInclude(end, { state: "done", servers: { [server]: { state: "done", step: 3 } } })
          const { json: runs } = yield* expectStatus(api, 200, "GET", `/api/schedules/${id}/runs`)
          assert.deepStrictEqual(runs, [end])
          assertError(
            yield* api.request("POST", `/api/runs/${begun.id}/cancel`),
            409,
            `run is done: ${begun.id}`
          )
          assertError(yield* api.request("GET", "/api/runs/nothing"), 404, "run not found: nothing")
        })
    )

    it.effect("spec 13.6: a server that fails is an event of the opt-in topic", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "kept")
        const stream = yield* subscribe(api, `/api/events?topics=schedule&server_id=${server}`)
        const plain = yield* subscribe(api, `/api/events?server_id=${server}`)
        const { id } = yield* create(api, { server_id: server, steps: [{ command: ["x"] }] })
        const { json: begun } = yield* expectStatus(api, 202, "POST", `/api/schedules/${id}/run`)
        const { reason } = yield* over(api, begun.id)
        assert.match(reason, /step 1: server is offline/)
        const [event] = yield* eventually(
          () => stream.events(),
          (events) => events.length > 0
        )
        assert.deepStrictEqual(event?.Topic === "schedule" ? event.Data.payload : undefined, {
          ...{ schedule_id: id, name: "nightly", run_id: begun.id, due_at: begun.due_at, state: "failed" },
          reason: `step 1: server is offline: ${server}`
        })
        assert.deepStrictEqual(plain.events(), [])
      })
    )
  })

  describe("spec 13.4: rights", () => {
    it.effect(
      "a key needs the right of each step, and sees its own schedules if it has limited servers",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const server = yield* installed(api, "kept", { labels: { team: "rights" } })
          const foreign = yield* create(api, { server_id: server })
          const reader = yield* keyed("ReadOnly")
          assertError(yield* reader.request("GET", "/api/schedules"), 403, "the API key lacks: schedules")
          const limited = yield* keyed("Operator", {
            allow: ["schedules", "restart"],
            labels: { team: "rights" }
          })
          const own = yield* create(limited, { server_id: server })
          for (const [method, path] of [
            ["GET", ""],
            ["DELETE", ""],
            ["POST", "/run"],
            ["GET", "/runs"]
          ] as const)
            assertError(yield* limited.request(method, `/api/schedules/${foreign.id}${path}`), 404)
          const listed = (yield* expectStatus(limited, 200, "GET", "/api/schedules")).json
          assert.deepStrictEqual(
            listed.map(({ id }: { readonly id: string }) => id),
            [own.id]
          )
          const kills = body({ server_id: server, steps: [{ wait: 1 }, { power: "kill" }] })
          const lacks = "step 2: the API key lacks: kill"
          assertError(yield* limited.request("POST", "/api/schedules", { body: kills }), 403, lacks)
          const plan = yield* expectStatus(limited, 200, "POST", "/api/schedules?dry_run=true", {
            body: kills
          })
          assert.deepStrictEqual(plan.json.problems, [lacks])
          const hooks = body({ server_id: server, steps: [{ webhook: "x" }] })
          assertError(yield* limited.request("POST", "/api/schedules", { body: hooks }), 403)
          const unlimited = yield* keyed("Operator", { allow: ["schedules", "start"] })
          assertError(
            yield* unlimited.request("POST", `/api/schedules/${foreign.id}/run`),
            403,
            "step 1: the API key lacks: restart"
          )
        })
    )

    it.effect("a schedule has the rights of the key of its last change, and ends with it", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* running(api, "kept")
        const key = yield* keyed("Operator", { allow: ["schedules", "commands"] })
        const { id } = yield* create(key, { server_id: server, steps: [{ wait: 3600 }] })
        const { json: begun } = yield* expectStatus(key, 202, "POST", `/api/schedules/${id}/run`)
        yield* expectStatus(api, 200, "DELETE", `/api/keys/${key.id}`)
        const end = yield* over(api, begun.id)
        const reason = "the key of the schedule is revoked or has expired"
        assert.deepInclude(end, { state: "failed", reason })
        assert.deepInclude(end.servers[server], { state: "failed", reason })
        const { json: taken } = yield* expectStatus(api, 200, "PATCH", `/api/schedules/${id}`, {
          body: { steps: [{ command: ["x"] }] }
        })
        assert.notStrictEqual(taken.created_by, key.id)
        const { json: again } = yield* expectStatus(api, 202, "POST", `/api/schedules/${id}/run`)
        assert.deepInclude(yield* over(api, again.id), { state: "done" })
      })
    )
  })
})
