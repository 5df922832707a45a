import { rmSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Muster } from "../../support/Muster.ts"
import {
  changeRollout,
  fleetBlueprints,
  fleetSoftware,
  publish,
  rollOut,
  rolloutIs
} from "../../support/rollouts.ts"
import { create, expectStatus, installed } from "../../support/servers.ts"
import { assertError, options } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

const fleet = Muster.layer(
  { blueprints: fleetBlueprints("one"), software: fleetSoftware },
  { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26300-26399" }
)

const over = (ids: ReadonlyArray<string>, more: Readonly<Record<string, unknown>> = {}) => ({
  selector: { ids },
  ...more
})

layer(fleet, options)("rollouts", (it) => {
  describe("spec 3.13: the routes", () => {
    it.effect("the body is checked: an empty selector, values out of bounds, unknown fields are 422", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* create(api, "fleet")
        for (const body of [
          {},
          { selector: {} },
          over([id], { max_parallel: 0 }),
          over([id], { max_parallel: 51 }),
          over([id], { max_parallel: 1.5 }),
          over([id], { max_parallel: "0%" }),
          over([id], { max_parallel: "101%" }),
          over([id], { max_parallel: "2" }),
          over([id], { notify: "" }),
          over([id], { notify: "two\nlines" }),
          over([id], { notify: "bye", notify_seconds: 3601 }),
          over([id], { notify: "bye", restart: "when_stopped" }),
          over([id], { notify_seconds: 1 }),
          over([id], { canary: 0 }),
          over([id], { restart: "later" }),
          over([id], { on_failure: "stop" }),
          over([id], { start_timeout: 0 }),
          over([id], { parallel: 2 })
        ]) {
          assertError(yield* api.request("POST", "/api/rollouts", { body }), 422)
        }
        const none = yield* api.request("POST", "/api/rollouts", {
          body: { selector: { blueprint_id: "nothing" } }
        })
        assertError(none, 422, "no server matches the selector")
        const unknown = yield* api.request("POST", "/api/rollouts", { body: over([id, "nobody"]) })
        assertError(unknown, 404, "server not found: nobody")
        for (const path of ["/api/rollouts/nothing", "/api/rollouts/nothing/pause"]) {
          const method = path.endsWith("pause") ? "POST" : "GET"
          assertError(yield* api.request(method, path), 404, "rollout not found: nothing")
        }
        assertError(yield* api.request("GET", "/api/rollouts", { key: null }), 401)
        assertError(yield* api.request("GET", "/api/rollouts?after=nothing"), 422)
        assertError(yield* api.request("GET", "/api/rollouts?limit=101"), 422)
      })
    )

    it.effect(
      "servers that have the definition already are done; dry_run shows the changes of the others",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          yield* publish(api, "one")
          const old = [yield* installed(api, "fleet"), yield* installed(api, "fleet")]
          const created = yield* expectStatus(api, 201, "POST", "/api/rollouts", { body: over(old) })
          assert.strictEqual(created.headers.get("location"), `/api/rollouts/${created.json.id}`)
          const { created_at, created_by, finished_at, id, ...rest } = created.json
          assert.strictEqual(created_at, finished_at)
          assert.deepStrictEqual(rest, {
            state: "done",
            selector: { ids: old },
            revisions: [],
            max_parallel: 2,
            restart: "now",
            on_failure: "pause",
            total: 2,
            done: 2,
            under_way: 0,
            waiting: 0,
            failed: [],
            failed_total: 0
          })
          assert.strictEqual(typeof created_by.key_id, "string")
          assert.deepStrictEqual(
            (yield* expectStatus(api, 200, "GET", `/api/rollouts/${id}`)).json,
            created.json
          )

          yield* publish(api, "two", 128)
          const fresh = yield* installed(api, "fleet")
          const body = over([...old, fresh])
          const plan = yield* expectStatus(api, 200, "POST", "/api/rollouts?dry_run=true&limit=1", { body })
          assert.strictEqual(plan.json.total, 3)
          assert.strictEqual(plan.json.up_to_date, 1)
          assert.deepStrictEqual(plan.json.servers, [
            {
              server_id: old[0],
              changes: [
                { path: "env.VERSION", from: "one", to: "two", needs: "installation" },
                { path: "limits.memory_limit", from: 64, to: 128, needs: "restart" },
                { path: "version", from: "one", to: "two", needs: "installation" }
              ]
            }
          ])
          const link = /<([^>]+)>; rel="next"/.exec(plan.headers.get("link") ?? "")?.[1] ?? ""
          const second = yield* expectStatus(api, 200, "POST", link, { body })
          assert.deepStrictEqual(
            second.json.servers.map(({ server_id }: { readonly server_id: string }) => server_id),
            [old[1]]
          )
          assert.isNull(second.headers.get("link"))
          const [newest] = (yield* expectStatus(api, 200, "GET", "/api/rollouts")).json
          assert.strictEqual(newest.id, id)
        })
    )

    it.effect("a rollout records its selector, its caller, and the revisions before and after", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        yield* publish(api, "one")
        const labels = { team: "recorded" }
        const ids = yield* Effect.forEach([1, 2, 3, 4, 5], () => installed(api, "fleet", { labels }))
        const env = { BROKEN: "never" }
        yield* expectStatus(api, 200, "PATCH", `/api/servers/${ids[0]}`, { body: { overrides: { env } } })
        const revisionOf = (id: string | undefined) =>
          Effect.map(
            expectStatus(api, 200, "GET", `/api/servers/${id}?include=definition`),
            ({ json }): string => json.definition.revision
          )
        const before = yield* Effect.forEach(ids, revisionOf)
        yield* publish(api, "two")
        const key = yield* keyed("Operator")
        const selector = { labels: ["team=recorded"], blueprint_id: "fleet" }
        const notice = { notify: "say bye", notify_seconds: 0 }
        const { id } = yield* rollOut(key, { selector, max_parallel: "50%", ...notice })
        const done = yield* rolloutIs(api, id, "done")
        const after = yield* Effect.forEach(ids, revisionOf)
        const from = (at: number) => ({ revision: before[at] ?? "", version: "one" })
        const to = (at: number) => ({ revision: after[at] ?? "", version: "two" })
        assert.deepInclude(done, { selector, max_parallel: 2, ...notice })
        assert.deepStrictEqual(
          done.revisions?.map(({ servers }) => servers),
          [4, 1]
        )
        assert.deepStrictEqual(done.revisions, [
          { blueprint_id: "fleet", servers: 4, from: from(1), to: to(1) },
          { blueprint_id: "fleet", servers: 1, from: from(0), to: to(0) }
        ])
        const self = (yield* expectStatus(key, 200, "GET", "/api/keys/self")).json
        assert.deepStrictEqual(done.created_by, { key_id: self.id, name: self.name })
      })
    )

    it.effect("a server in two unfinished rollouts is 409; pause, resume and abort follow the state", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        // The server stays under way: its installation does not end.
        const id = yield* create(api, "endless")
        yield* publish(api, "three")
        const requests = Array.from({ length: 5 }, () =>
          api.request("POST", "/api/rollouts", { body: over([id]) })
        )
        const answers = yield* Effect.all(requests, { concurrency: "unbounded" })
        assert.deepStrictEqual(answers.map(({ status }) => status).toSorted(), [201, 409, 409, 409, 409])
        const first = answers.find(({ status }) => status === 201)?.json.id
        const refused = answers.find(({ status }) => status === 409)
        assert.strictEqual(refused?.json.detail, `servers are in an unfinished rollout: ${id} (${first})`)

        yield* rolloutIs(api, first, "running")
        const change = (name: "pause" | "resume" | "abort", state: string) =>
          Effect.map(changeRollout(api, first, name), (answer) => {
            assert.strictEqual(answer.status, 200, answer.text)
            assert.strictEqual(answer.json.state, state)
          })
        yield* change("pause", "paused")
        yield* change("pause", "paused")
        yield* change("resume", "running")
        yield* change("resume", "running")
        yield* change("abort", "aborted")
        yield* change("abort", "aborted")
        for (const name of ["pause", "resume"] as const) {
          assertError(yield* changeRollout(api, first, name), 409, `rollout is aborted: ${first}`)
        }
        const next = yield* rollOut(api, over([id], { canary: 1, max_parallel: 50, start_timeout: 5 }))
        yield* rolloutIs(api, next.id, "canary")

        const list = yield* expectStatus(api, 200, "GET", "/api/rollouts?limit=1")
        assert.deepStrictEqual([list.json.length, list.json[0].id], [1, next.id])
        const link = /<([^>]+)>; rel="next"/.exec(list.headers.get("link") ?? "")?.[1] ?? ""
        const rest = yield* expectStatus(api, 200, "GET", link)
        assert.deepStrictEqual(
          rest.json.map((one: { readonly id: string }) => one.id),
          [first]
        )
      })
    )

    it.effect("a server without a valid definition today is 422; the plan has the reason", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* create(api, "passing")
        yield* Effect.sync(() => rmSync(join(api.folders.blueprints, "passing.yml")))
        yield* expectStatus(api, 200, "POST", "/api/blueprints/reload")
        const body = over([id])
        const plan = yield* expectStatus(api, 200, "POST", "/api/rollouts?dry_run=true", { body })
        const problem = "blueprint not found: passing"
        assert.deepStrictEqual(plan.json.servers, [{ server_id: id, changes: [], problem }])
        const refused = yield* api.request("POST", "/api/rollouts", { body })
        assertError(refused, 422, `servers have no valid definition: ${id}: ${problem}`)
      })
    )

    it.effect(
      "a rollout changes no server that has left the limits of its key; a limited key sees no other rollouts",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          yield* publish(api, "one")
          const labels = { team: "c" }
          const [first, second] = [
            yield* installed(api, "fleet", { labels }),
            yield* installed(api, "fleet", { labels })
          ]
          yield* publish(api, "two")
          const key = yield* keyed("Operator", { labels })
          const other = yield* keyed("Operator", { labels })
          const body = { selector: { labels }, canary: 1 }
          const { id } = yield* rollOut(key, body)
          yield* rolloutIs(key, id, "paused")
          const refused = yield* other.request("POST", "/api/rollouts", { body })
          assertError(refused, 409, `servers are in an unfinished rollout: ${second}`)
          assert.notInclude(refused.text, id)
          yield* expectStatus(api, 200, "PATCH", `/api/servers/${second}`, {
            body: { labels: { team: "d" } }
          })
          yield* changeRollout(key, id, "resume")
          yield* rolloutIs(key, id, "done")
          const versions = yield* Effect.forEach([first, second], (server) =>
            Effect.map(
              expectStatus(api, 200, "GET", `/api/servers/${server}?include=software`),
              ({ json }) => json.version
            )
          )
          assert.deepStrictEqual(versions, ["two", "one"])
        })
    )
  })
})
