import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { muster } from "../../support/command.ts"
import { eventsAre, subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { becomes, create, expectStatus, installed, power, running } from "../../support/servers.ts"
import { definitions, down, fileOf, follow, gate, licence, up, upAgain } from "./setup.ts"

const openGate = Effect.acquireRelease(
  Effect.sync(() => writeFileSync(gate, "")),
  () => Effect.sync(() => rmSync(gate, { force: true }))
)

layer(Muster.layer(definitions), { excludeTestServices: true, timeout: "60 seconds" })("lifecycle", (it) => {
  describe("spec 3.11: installation", () => {
    it.effect("a failed installation gives the reason; start is 409 until a reinstall succeeds", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* create(api, "licensed", { start: true })
        yield* becomes(api, id, "offline")
        const { json: failed } = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/install`)
        assert.deepInclude(failed, { phase: "failed", exit_code: 3, entrypoint: "sh" })
        assert.match(
          failed.failure_reason,
          /^install script exited with 3 \(node .*\): .*, then reinstall the server: POST \/api\/servers\/:server\/reinstall$/
        )
        const logs = yield* expectStatus(api, 200, "GET", `/api/servers/${id}/install/logs`)
        assert.include(logs.json.data, "looking for a licence")
        assert.notInclude(logs.json.data, "found it")
        const env = { MUSTER_URL: api.url, MUSTER_API_KEY: api.key }
        const { stderr } = yield* muster(["servers", "install-log", id, "--follow"], env)
        assert.include(stderr, "script: failed\n")
        assert.notInclude(stderr, "script: done")
        const refused = yield* power(api, id, "start")
        assert.strictEqual(refused.status, 409)
        assert.include(refused.json.detail, "install script exited with 3")
        yield* Effect.acquireRelease(
          Effect.sync(() => writeFileSync(licence, "")),
          () => Effect.sync(() => rmSync(licence))
        )
        yield* expectStatus(api, 202, "POST", `/api/servers/${id}/reinstall`)
        yield* eventually(
          api.request("GET", `/api/servers/${id}/install`),
          (answer) => answer.json.phase === "ready"
        )
        // The creation asked for a start after the installation.
        yield* becomes(api, id, "running")
        yield* eventsAre(stream, id, ["installing", "offline", "installing", "offline", ...upAgain])
        const again = yield* expectStatus(
          api,
          200,
          "GET",
          `/api/servers/${id}/install/logs?per_page=2&page=1`
        )
        assert.deepStrictEqual(again.json.data, ["looking for a licence", "found it"])
      })
    )

    it.effect(
      "the steps of an installation are live on the topic install, and stay in the installation",
      () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const topics = ["install installing", "install installing script"]
          const after = ["install installing instance", "install ready"]
          const started = ["install ready start", "install ready start"]
          const stream = yield* subscribe(api, "/api/events?topics=install&cursor=now")
          const id = yield* create(api, "gated", { start: true })
          const install = (query = "") =>
            Effect.map(expectStatus(api, 200, "GET", `/api/servers/${id}/install${query}`), (it) => it.json)
          yield* eventsAre(stream, id, topics)
          const [place, commit, script, ...none] = (yield* install()).steps
          assert.deepStrictEqual([place.name, commit.name, script.name], ["place", "commit", "script"])
          assert.isString(place.finished_at)
          assert.isString(commit.finished_at)
          assert.deepStrictEqual(Object.keys(script), ["name", "started_at"])
          assert.deepStrictEqual(none, [])
          yield* openGate
          yield* becomes(api, id, "running")
          yield* eventsAre(stream, id, [...topics, ...after, ...started])
          const { steps } = yield* install()
          const names = ["place", "commit", "script", "instance", "start"]
          assert.deepStrictEqual(
            steps.map(({ name }: { name: string }) => name),
            names
          )
          for (const step of steps) {
            assert.deepStrictEqual(Object.keys(step), ["name", "started_at", "finished_at"])
            assert.isAtMost(Date.parse(step.started_at), Date.parse(step.finished_at))
          }
          const { script: _, ...without } = yield* install()
          assert.deepStrictEqual(yield* install("?script=false"), without)
          // A client that resumes misses no step.
          const first = stream.events()[0]?.Cursor ?? 0
          const resumed = yield* subscribe(api, `/api/events?topics=install&cursor=${first}`)
          yield* eventsAre(resumed, id, [...topics, ...after, ...started].slice(1))
        })
    )

    it.effect("install logs are paged, oldest first", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* installed(api, "kept")
        const page = (query: string) =>
          Effect.map(
            expectStatus(api, 200, "GET", `/api/servers/${id}/install/logs?${query}`),
            (it) => it.json
          )
        assert.deepStrictEqual((yield* page("")).data, ["step 1", "step 2", "step 3", "step 4", "step 5"])
        assert.deepStrictEqual(yield* page("page=2&per_page=2"), {
          meta: { pagination: { total: 5, per_page: 2, current_page: 2, total_pages: 3 } },
          data: ["step 3", "step 4"]
        })
      })
    )

    it.effect("reset stops the server and restores its files", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* running(api, "kept")
        writeFileSync(fileOf(api, id, "world.txt"), "griefed")
        writeFileSync(fileOf(api, id, "extra.txt"), "more")
        yield* expectStatus(api, 202, "POST", `/api/servers/${id}/reset`)
        yield* eventsAre(stream, id, [...up, ...down, "installing", "offline"])
        assert.strictEqual(readFileSync(fileOf(api, id, "world.txt"), "utf8"), "a new world\n")
        assert.isFalse(existsSync(fileOf(api, id, "extra.txt")))
        yield* expectStatus(api, 200, "POST", `/api/servers/${id}/power`, { body: { action: "start" } })
        yield* becomes(api, id, "running")
      })
    )

    it.effect("reinstall of a saved server keeps its own files", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* follow(api)
        const id = yield* installed(api, "kept")
        writeFileSync(fileOf(api, id, "world.txt"), "griefed")
        writeFileSync(fileOf(api, id, "extra.txt"), "more")
        yield* expectStatus(api, 202, "POST", `/api/servers/${id}/reinstall`)
        yield* eventsAre(stream, id, ["installing", "offline", "installing", "offline"])
        assert.strictEqual(readFileSync(fileOf(api, id, "world.txt"), "utf8"), "a new world\n")
        assert.strictEqual(readFileSync(fileOf(api, id, "extra.txt"), "utf8"), "more")
      })
    )
  })
})
