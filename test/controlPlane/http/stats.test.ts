import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Muster } from "../../support/Muster.ts"
import { expectStatus, installed, running } from "../../support/servers.ts"
import { assertError, keysOf, options, removed, service } from "./support/http.ts"

layer(service(), options)("spec 3.7: figures of many servers", (it) => {
  describe("GET /api/stats and include=stats", () => {
    it.effect("both have the figures of the servers that a list would have", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const up = yield* running(api, "kept", { labels: { team: "a" } })
        const off = yield* installed(api, "kept")
        const get = (path: string) => expectStatus(api, 200, "GET", path)
        const all = (yield* get("/api/stats")).json
        assert.deepStrictEqual(keysOf(all), [up, off].toSorted())
        assert.strictEqual(all[up].state, "running")
        assert.isAbove(all[up].memory_bytes, 0)
        assert.deepInclude(all[off], { state: "offline", memory_bytes: 0, uptime: 0 })
        assert.deepStrictEqual(keysOf((yield* get("/api/stats?label=team=a")).json), [up])
        const page = yield* get("/api/stats?limit=1")
        assert.deepStrictEqual(keysOf(page.json), [up])
        assert.strictEqual(page.headers.get("link"), `</api/stats?limit=1&after=${up}>; rel="next"`)

        const plain = (yield* get("/api/servers")).json
        const list = yield* get("/api/servers?include=stats,status")
        assert.deepStrictEqual(
          list.json.map(
            ({
              stats: { state },
              status,
              created_at: _,
              ...rest
            }: Record<string, unknown> & { stats: { state: string } }) => [state, status, rest]
          ),
          [
            ["running", "running", plain[0]],
            ["offline", "offline", plain[1]]
          ]
        )
        const limited = yield* get(`/api/servers?include=stats&limit=1&after=${up}`)
        assert.deepStrictEqual(
          limited.json.map(({ id }: { id: string }) => id),
          [off]
        )
        const one = yield* get(`/api/servers/${up}?include=stats`)
        assert.strictEqual(one.json.stats.state, "running")
        assert.isNotNull(one.headers.get("etag"))
        assert.isNotNull(one.headers.get("x-muster-cursor"))
        assert.deepStrictEqual((yield* get("/api/servers?ids_only=true&include=stats")).json, [up, off])
        yield* removed(up)
        yield* removed(off)
        assert.deepStrictEqual((yield* get("/api/stats")).json, {})
        assert.deepStrictEqual((yield* get("/api/servers?include=stats")).json, [])
      })
    )

    it.effect("an unknown parameter or server to begin after is 422", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        assertError(yield* api.request("GET", "/api/stats?lable=a"), 422, /did you mean label/)
        assertError(yield* api.request("GET", "/api/stats?after=none"), 422)
      })
    )
  })
})
