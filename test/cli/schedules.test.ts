import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { options, service } from "../controlPlane/http/support/http.ts"
import { eventually } from "../support/eventually.ts"
import { Muster } from "../support/Muster.ts"
import { expectStatus, installed, running } from "../support/servers.ts"
import { done, refused } from "./support.ts"

layer(service(), options)("muster schedules", (it) => {
  describe("spec 8, 13: schedules", () => {
    it.effect("create reads each form of a step; list, show, pause, resume and delete find it", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "kept", { name: "scheduled" })
        const forms = [
          "command=say hi=there",
          "wait=60s",
          "warn=1m,10s:say {{left}}",
          "power=stop",
          "wait-for=offline:2m",
          "upgrade",
          "power=start"
        ]
        const steps = forms.flatMap((form) => ["--step", form])
        const id = yield* done(
          ...["schedules", "create", "nightly", "0 4 * * MON", "--server", "scheduled", "--timezone"],
          ...["Europe/Berlin", "--missed", "run", "--catch-up", "2h", "--stagger", "5s", ...steps, "-o", "id"]
        )
        const { json } = yield* expectStatus(api, 200, "GET", `/api/schedules/${id}`)
        assert.deepInclude(json, {
          ...{ name: "nightly", cron: "0 4 * * MON", timezone: "Europe/Berlin", server_id: server },
          ...{ missed: "run", catch_up: 7200, stagger: 5 },
          steps: [
            { command: ["say hi=there"] },
            { wait: 60 },
            { warn: { line: "say {{left}}", at: [60, 10] } },
            { power: "stop" },
            { wait_for: "offline", timeout: 120 },
            { upgrade: {} },
            { power: "start" }
          ]
        })
        assert.strictEqual(yield* done("schedules", "list", "--server", "scheduled", "-o", "id"), id)
        assert.match(yield* done("schedules", "list"), / SOURCE .*\n.* api /)
        assert.include(yield* done("schedules", "pause", "nightly"), "paused")
        assert.match(yield* done("schedules", "resume", id), /^next: +\S+Z$/m)
        assert.match(
          yield* done("schedules", "show", id),
          /^steps: +command=say hi=there; wait=1m; warn=1m,10s:say/m
        )
        assert.include(yield* done("schedules", "show", id.slice(0, 6)), id)
        const question = yield* refused(64, "schedules", "delete", id)
        assert.include(question, "--yes")
        yield* done("schedules", "delete", id, "--yes")
        assert.include(
          yield* refused(3, "schedules", "show", id),
          "`muster schedules list` lists what exists."
        )
      })
    )

    it.effect("restart warns players of running servers; a dry run shows times and servers", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "kept", { labels: { team: "cli" } })
        const restart = ["schedules", "restart", "30 2 * * *", "--timezone", "Europe/Berlin"]
        const args = [...restart, "--selector", "label=team=cli", "--warn", "10m,1m,10s"]
        const plan = yield* done(...args, "--dry-run")
        assert.match(plan, /^Next times:\n( {2}\S+Z.*\n){10}Servers that match today: 1$/)
        const { servers, times } = JSON.parse(yield* done(...args, "--dry-run", "--json"))
        assert.deepStrictEqual([servers, times.length], [[server], 10])
        const made = JSON.parse(yield* done(...args, "--json"))
        assert.deepInclude(made, {
          only_if: { status: "running" },
          selector: { labels: ["team=cli"] },
          steps: [{ warn: { line: "say Restart in {{left}}", at: [600, 60, 10] } }, { power: "restart" }]
        })
      })
    )

    it.effect("run begins a run, runs lists it, and cancel ends it", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* running(api, "kept")
        const id = yield* done(
          ...["schedules", "create", "long", "0 4 * * *", "--server", server, "--step", "wait=1h", "-o", "id"]
        )
        const run = yield* done("schedules", "run", id, "-o", "id")
        yield* eventually(
          expectStatus(api, 200, "GET", `/api/runs/${run}`),
          ({ json }) => json.servers[server]?.step === 1
        )
        assert.match(yield* done("schedules", "runs", id), /running +1 running/)
        assert.include(yield* refused(2, "schedules", "delete", id, "--yes"), `muster schedules cancel`)
        yield* done("schedules", "cancel", run)
        yield* eventually(
          expectStatus(api, 200, "GET", `/api/runs/${run}`),
          ({ json }) => json.state === "cancelled"
        )
      })
    )

    it.effect("a wrong step, time or choice of servers is refused with its forms", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "kept")
        const create = ["schedules", "create", "a", "0 4 * * *"]
        const of = ["--server", server]
        assert.include(yield* refused(64, ...create, ...of, "--step", "dance"), "--step dance is no step.")
        assert.include(
          yield* refused(64, ...create, ...of, "--step", "wait=soon"),
          "--step wait=soon is no step."
        )
        assert.include(yield* refused(64, ...create, ...of), "Give at least one --step.")
        assert.include(yield* refused(64, ...create, "--step", "wait=1s"), "Name the servers")
        const six = yield* refused(64, "schedules", "create", "a", "0 0 4 * * *", ...of, "--step", "wait=1s")
        assert.include(six, "it has six fields")
      })
    )
  })
})
