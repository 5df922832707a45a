import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Muster } from "../../support/Muster.ts"
import { create, expectStatus, installed, statusOf } from "../../support/servers.ts"
import { assertError, options, removed, service } from "./support/http.ts"

const patch = Effect.fnUntraced(function* (id: string, body: unknown) {
  const api = yield* Muster
  return (yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body })).json
})

layer(service({ MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26700-26799" }), options)("servers", (it) => {
  describe("spec 3.12: PATCH", () => {
    it.effect("labels are merged, null removes; fields that are absent stay", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* create(api, "kept", { name: "one", labels: { a: "1", b: "2" }, expires_in: 600 })
        const before = (yield* expectStatus(
          api,
          200,
          "GET",
          `/api/servers/${id}?include=expires_at,updated_at`
        )).json
        const after = yield* patch(id, { labels: { a: null, c: "3" } })
        assert.deepStrictEqual(after.labels, { b: "2", c: "3" })
        assert.strictEqual(after.name, "one")
        assert.strictEqual(after.expires_at, before.expires_at)
        assert.deepStrictEqual((yield* patch(id, {})).labels, { b: "2", c: "3" })
        const cleared = yield* patch(id, { name: null, expires_in: null, labels: { b: null, c: null } })
        assert.deepStrictEqual([cleared.name, cleared.expires_at, cleared.labels], [null, null, {}])
        const shown = yield* expectStatus(
          api,
          200,
          "GET",
          `/api/servers/${id}?include=labels,name,updated_at`
        )
        assert.deepStrictEqual([shown.json.labels, shown.json.name], [{}, null])
        assert.isTrue(shown.json.updated_at >= before.updated_at)
        yield* removed(id)
      })
    )

    it.effect("a change out of bounds is 422 and changes nothing; an unknown server is 404", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const full = Object.fromEntries(Array.from({ length: 32 }, (_, n) => [`k${n}`, ""]))
        const id = yield* create(api, "kept", { labels: full })
        for (const body of [
          { labels: { more: "x" } },
          { labels: { A: "x" } },
          { labels: null },
          { name: "" },
          { expires_in: 1 },
          { blueprint_id: "kept" }
        ]) {
          assertError(yield* api.request("PATCH", `/api/servers/${id}`, { body }), 422)
        }
        const { labels } = yield* patch(id, { labels: { k0: null, more: "x" } })
        assert.strictEqual(Object.keys(labels).length, 32)
        assertError(yield* api.request("PATCH", "/api/servers/nothing", { body: {} }), 404)
        yield* removed(id)
      })
    )
  })

  describe("spec 3.13: bulk actions", () => {
    it.effect("a power action on a selector has an outcome for each server", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const labels = { bulk: "power" }
        const made = yield* Effect.all(
          Array.from({ length: 3 }, () => installed(api, "kept", { labels })),
          { concurrency: "unbounded" }
        )
        const other = yield* installed(api, "kept")
        const power = (body: unknown) => expectStatus(api, 200, "POST", "/api/servers/power", { body })
        const started = yield* power({ selector: { labels }, action: "start" })
        assert.deepStrictEqual(started.json, Object.fromEntries(made.map((id) => [id, { status: 200 }])))
        for (const id of made) yield* expectStatus(api, 200, "GET", `/api/servers/${id}?wait=running`)
        assert.strictEqual(yield* statusOf(api, other), "offline")
        const named = [made[0] ?? "", other, "nothing"]
        const { json } = yield* power({ selector: { ids: named }, action: "pause" })
        assert.deepStrictEqual(json[named[0] ?? ""], { status: 200 })
        assert.deepInclude(json[other], { code: "409", status: "Conflict" })
        assert.deepInclude(json.nothing, {
          code: "404",
          status: "Not Found",
          detail: "server not found: nothing"
        })
        assert.match(json.nothing.request_id, /./)
        yield* power({ selector: { labels: ["bulk=power"], status: "running" }, action: "kill" })
        yield* Effect.forEach([...made, other], removed, { discard: true })
      })
    )

    it.effect("DELETE with a selector deletes exactly the selected servers", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const made = yield* Effect.all(
          Array.from({ length: 20 }, (_, n) => create(api, "kept", { labels: { bulk: n < 15 ? "a" : "b" } })),
          { concurrency: "unbounded" }
        )
        const body = { selector: { blueprint_id: "kept", labels: { bulk: "a" } } }
        const { json } = yield* expectStatus(api, 200, "DELETE", "/api/servers", { body })
        assert.deepStrictEqual(json, Object.fromEntries(made.slice(0, 15).map((id) => [id, { status: 200 }])))
        const left = (yield* expectStatus(api, 200, "GET", "/api/servers?ids_only=true")).json
        assert.deepStrictEqual(left.toSorted(), made.slice(15).toSorted())
        yield* Effect.forEach(made.slice(15), removed, { discard: true })
      })
    )

    it.effect("an empty selector, or one that cannot be read, is 422", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        for (const selector of [
          {},
          null,
          { labels: null },
          { label: "a" },
          { labels: ["=x"] },
          { labels: {} },
          { labels: [] },
          { labels: Array.from({ length: 65 }, () => "!a") },
          { status: "up" }
        ]) {
          assertError(yield* api.request("DELETE", "/api/servers", { body: { selector } }), 422)
          assertError(
            yield* api.request("POST", "/api/servers/power", { body: { selector, action: "stop" } }),
            422
          )
        }
        assertError(yield* api.request("DELETE", "/api/servers"), 422)
      })
    )
  })
})
