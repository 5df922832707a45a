import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { softwareFile } from "../../support/definitions.ts"
import { Muster } from "../../support/Muster.ts"
import { becomes, create, expectStatus, installed, statusOf } from "../../support/servers.ts"
import { assertError, games, keysOf, options, removed } from "./support/http.ts"

const headers = { accept: "application/vnd.sls.v1+json" }

const files = {
  software: {
    ...games.software,
    "lines.yml": softwareFile("lines", { install: { script: "for n in 1 2 3 4 5; do echo line $n; done" } }),
    "broken.yml": softwareFile("broken", { install: { script: "exit 3" } })
  },
  blueprints: {
    ...games.blueprints,
    "one.yml": JSON.stringify({ mixin: { id: "one", description: "First" } }),
    "two.yml": JSON.stringify({ mixin: { id: "two" } }),
    "lines.yml": JSON.stringify({
      blueprint: { id: "lines" },
      server: { software: "lines", version: "1.0" },
      save: true
    }),
    "broken.yml": JSON.stringify({
      blueprint: { id: "broken" },
      server: { software: "broken", version: "1.0" },
      save: true
    }),
    "never.yml": JSON.stringify({
      blueprint: { id: "never" },
      server: { software: "game", version: "1.0" },
      save: true,
      start: false
    })
  }
}

const env = { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26300-26309" }

layer(Muster.layer(files, env), options)("spec 1.12", (it) => {
  const asSls = Effect.fnUntraced(function* (path: string) {
    const answer = yield* expectStatus(yield* Muster, 200, "GET", path, { headers })
    assert.include(answer.headers.get("vary"), "Accept")
    return answer.json
  })
  const made = Effect.fnUntraced(function* (body: object, more: Record<string, string> = {}) {
    const answer = yield* expectStatus(yield* Muster, 202, "POST", "/api/servers", {
      body,
      headers: { ...headers, ...more }
    })
    return answer.json.id
  })
  const wait = { prefer: "wait=60" }

  describe("with `Accept: application/vnd.sls.v1+json`", () => {
    it.effect("a server starts once it is installed; `start` of the body and of the blueprint win", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const started = yield* made({ blueprint_id: "kept" })
        yield* becomes(api, started, "running")
        for (const body of [{ blueprint_id: "kept", start: false }, { blueprint_id: "never" }]) {
          const id = yield* made(body, wait)
          assert.strictEqual(yield* statusOf(api, id), "offline")
          yield* removed(id)
        }
        const plain = yield* installed(api, "kept")
        assert.strictEqual(yield* statusOf(api, plain), "offline")
        yield* removed(plain)
        yield* removed(started)
      })
    )

    it.effect("an idempotency key is not shared by a creation that starts and one that does not", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* made({ blueprint_id: "kept" }, { "idempotency-key": "both" })
        assert.strictEqual(yield* made({ blueprint_id: "kept" }, { "idempotency-key": "both" }), id)
        const other = { body: { blueprint_id: "kept" }, headers: { "idempotency-key": "both" } }
        assertError(yield* api.request("POST", "/api/servers", other), 409)
        yield* removed(id)
      })
    )

    it.effect("`per_page` is `limit`", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const [first, second] = [yield* create(api, "kept"), yield* create(api, "kept")]
        const page = yield* asSls("/api/servers?per_page=1")
        assert.deepStrictEqual(
          page.map(({ id }: { id: string }) => id),
          [first]
        )
        assert.deepStrictEqual(keysOf(yield* asSls("/api/stats?per_page=1")), [first])
        assert.deepStrictEqual(yield* asSls("/api/crashes?per_page=1"), [])
        assert.lengthOf(yield* asSls("/api/servers?per_page=1&limit=2"), 2)
        assertError(yield* api.request("GET", "/api/servers?per_page=1"), 422)
        yield* removed(first)
        yield* removed(second)
      })
    )

    it.effect("mixins are in the pagination envelope", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const all = (yield* expectStatus(api, 200, "GET", "/api/mixins")).json
        assert.deepStrictEqual(yield* asSls("/api/mixins"), {
          meta: { pagination: { total: 2, per_page: 50, current_page: 1, total_pages: 1 } },
          data: all
        })
        const second = yield* asSls("/api/mixins?page=2&per_page=1")
        assert.deepStrictEqual(second.meta.pagination, {
          total: 2,
          per_page: 1,
          current_page: 2,
          total_pages: 2
        })
        assert.deepStrictEqual(second.data, [all[1]])
        assertError(yield* api.request("GET", "/api/mixins?page=1"), 422)
        assertError(yield* api.request("GET", "/api/mixins?pages=1", { headers }), 422)
      })
    )

    it.effect("page 1 of an install log is the newest, also as logs?type=install", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* installed(api, "lines")
        const path = `/api/servers/${id}/install/logs`
        const { data } = (yield* expectStatus(api, 200, "GET", path)).json
        const { length } = data
        for (const [page, from, to] of [
          [1, -2, length],
          [2, -4, -2],
          [Math.ceil(length / 2), 0, length % 2 === 0 ? 2 : 1],
          [Math.ceil(length / 2) + 1, 0, 0]
        ] as const) {
          const query = `page=${page}&per_page=2`
          const expected = data.slice(from, to)
          assert.deepStrictEqual((yield* asSls(`${path}?${query}`)).data, expected)
          assert.deepStrictEqual(
            (yield* asSls(`/api/servers/${id}/logs?type=install&${query}`)).data,
            expected
          )
        }
        assert.deepStrictEqual((yield* asSls(`/api/servers/${id}/logs?type=install&size=1`)).data, [
          data.at(-1)
        ])
        assert.deepStrictEqual((yield* asSls(path)).data, data)
        const plain = (yield* expectStatus(api, 200, "GET", `${path}?per_page=2`)).json
        assert.deepStrictEqual(plain.data, data.slice(0, 2))
        assertError(yield* api.request("GET", `/api/servers/${id}/logs?type=install`), 422)
        yield* removed(id)
      })
    )

    it.effect("the phases of an installation have SLS's words", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const phaseOf = (id: string) => Effect.map(asSls(`/api/servers/${id}/install`), ({ phase }) => phase)
        const ready = yield* installed(api, "kept")
        const broken = yield* installed(api, "broken")
        const endless = yield* create(api, "endless")
        assert.strictEqual(yield* phaseOf(ready), "completed")
        assert.strictEqual(yield* phaseOf(broken), "install_failed")
        assert.include(["idle", "installing"], yield* phaseOf(endless))
        const plain = yield* expectStatus(api, 200, "GET", `/api/servers/${ready}/install`)
        assert.strictEqual(plain.json.phase, "ready")
        for (const id of [ready, broken, endless]) yield* removed(id)
      })
    )

    it.effect("the type counts also among others, and in any case", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const [accept, isEnvelope] of [
          ["text/html, Application/vnd.SLS.v1+json;q=0.9", true],
          ["application/json", false],
          ["application/vnd.sls.v2+json", false],
          ["*/*", false]
        ] as const) {
          const { json } = yield* expectStatus(api, 200, "GET", "/api/mixins", { headers: { accept } })
          assert.strictEqual(!Array.isArray(json), isEnvelope, accept)
        }
      })
    )
  })

  describe("for all clients", () => {
    it.effect("a mixin has `mixin`, the blueprint list `per_page`, a node's system its version", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const get = (path: string) => Effect.map(expectStatus(api, 200, "GET", path), ({ json }) => json)
        assert.deepInclude(yield* get("/api/mixins/one"), {
          id: "one",
          mixin: { id: "one", description: "First" }
        })
        assert.strictEqual((yield* get("/api/blueprints?per_page=2")).data.length, 2)
        const [{ id }] = yield* get("/api/nodes")
        assert.deepStrictEqual(keysOf(yield* get(`/api/nodes/${id}/system`)), ["system", "version"])
      })
    )
  })
})

layer(Muster.layer(files, { ...env, MUSTER_EMBEDDED_NODE: "false", MUSTER_RATE_LIMIT: "3" }), options)(
  "spec 1.12: limits",
  (it) => {
    it.effect("a 429 has X-RateLimit-Reset, a Unix time in seconds", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const before = Math.floor(Date.now() / 1000)
        const ask = (key?: string) =>
          api.request("GET", "/api/nodes", { headers, ...(key === undefined ? {} : { key }) })
        const over = yield* Effect.repeat(ask(), { until: ({ status }) => status === 429, times: 10 })
        const failed = yield* Effect.repeat(ask("wrong"), {
          until: ({ status }) => status === 429,
          times: 30
        })
        for (const answer of [over, failed]) {
          assertError(answer, 429)
          const reset = Number(answer.headers.get("x-ratelimit-reset"))
          assert.isTrue(Number.isInteger(reset) && reset >= before && reset <= before + 3600, String(reset))
        }
      })
    )
  }
)
