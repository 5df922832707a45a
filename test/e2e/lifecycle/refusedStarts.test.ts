import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, softwareFile } from "../../support/definitions.ts"
import { eventsAre, subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { create, expectStatus, power, running } from "../../support/servers.ts"

/** The patch of `c.json` fails: the file is UTF-16. */
const patch = { configs: { "c.json": { parser: "json", find: { x: 2 } } } }
const utf16 = "printf '\\377\\376{' > c.json"
const files = { "server.sh": consoleServer }

const definitions = {
  software: {
    "odd.yml": softwareFile("odd", { files, install: { script: utf16 } }),
    "slow.yml": softwareFile("slow", { files, install: { script: `${utf16}\nsleep 1` } }),
    "twice.yml": softwareFile("twice", {
      files: { "server.sh": `${utf16}\n${consoleServer}` }
    })
  },
  blueprints: {
    "odd.yml": blueprintFile("odd", "odd", { server: patch }),
    "passing.yml": blueprintFile("passing", "odd", { server: patch, save: false }),
    "slow.yml": blueprintFile("slow", "slow", { server: patch }),
    "twice.yml": blueprintFile("twice", "twice", { server: patch })
  }
}

const reason = "cannot patch c.json: it is UTF-16, which is not supported"

layer(Muster.layer(definitions), { excludeTestServices: true, timeout: "60 seconds" })(
  "refused starts",
  (it) => {
    const fields = (api: Muster["Service"], id: string) =>
      Effect.map(expectStatus(api, 200, "GET", `/api/servers/${id}?include=status,problem`), (it) => it.json)

    describe("the reason of a refused start reaches everybody who waits", () => {
      for (const blueprint of ["odd", "passing", "slow"]) {
        it.effect(`a creation that waits is 409 with the reason: ${blueprint}`, () =>
          Effect.gen(function* () {
            const api = yield* Muster
            const created = yield* api.request("POST", "/api/servers", {
              body: { blueprint_id: blueprint, start: true },
              headers: { prefer: "wait=20" }
            })
            assert.strictEqual(created.status, 409, created.text)
            assert.include(created.json.detail, reason)
            assert.include(created.json.hint, "Correct the file on node")
            assert.notInclude(created.text, "/server/")
          })
        )
      }

      it.effect("a wait that begins after the refusal ends at once", () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const stream = yield* subscribe(api, "/api/events?topics=problem,status&cursor=now")
          const id = yield* create(api, "odd", { start: true })
          const { problem } = yield* eventually(fields(api, id), (it) => it.problem !== null)
          assert.deepStrictEqual(Object.keys(problem), ["code", "detail", "hint", "since"])
          assert.deepInclude(problem, { code: "422", detail: reason })
          const waited = yield* expectStatus(api, 409, "GET", `/api/servers/${id}?wait=running&timeout=60`)
          assert.include(waited.json.detail, reason)
          const again = yield* power(api, id, "start")
          assert.strictEqual(again.status, 422)
          assert.strictEqual(again.json.detail, reason)
          assert.deepStrictEqual(
            (yield* fields(api, id)).problem,
            problem,
            "the time is that of the first refusal"
          )
          const bulk = yield* expectStatus(api, 200, "POST", "/api/servers/power", {
            body: { selector: { ids: [id] }, action: "start" }
          })
          assert.strictEqual(bulk.json[id].detail, reason)
          const overrides = { limits: { memory_limit: 48 } }
          yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body: { overrides } })
          const words = ["installing", "offline", `problem ${JSON.stringify(problem)}`, "problem null"]
          yield* eventsAre(stream, id, words)
        })
      )

      it.effect("a restart whose start is refused ends a wait, and a reset ends the problem", () =>
        Effect.gen(function* () {
          const api = yield* Muster
          const id = yield* running(api, "twice")
          const waiting = expectStatus(api, 409, "GET", `/api/servers/${id}?wait=running&timeout=60`)
          yield* expectStatus(api, 200, "POST", `/api/servers/${id}/power`, { body: { action: "restart" } })
          assert.include((yield* waiting).json.detail, reason)
          const now = yield* fields(api, id)
          assert.deepInclude(now, { status: "offline" })
          assert.strictEqual(now.problem.detail, reason)
          yield* expectStatus(api, 202, "POST", `/api/servers/${id}/reset`)
          yield* expectStatus(api, 200, "POST", `/api/servers/${id}/power`, { body: { action: "start" } })
          yield* eventually(fields(api, id), (it) => it.status === "running" && it.problem === null)
        })
      )
    })
  }
)
