import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Muster } from "../../support/Muster.ts"
import { create, expectStatus } from "../../support/servers.ts"
import { assertError, keysOf, options, removed, service } from "./support/http.ts"

const summary = ["allocations", "blueprint_id", "id", "node_id", "node_name"]
const serverId = /^[a-z][a-z0-9]{11}$/

const count = Effect.gen(function* () {
  const api = yield* Muster
  return (yield* expectStatus(api, 200, "GET", "/api/servers?ids_only=true")).json.length as number
})

layer(service(), options)("servers", (it) => {
  describe("spec 3.1, 3.3: creation and lists", () => {
    it.effect("a creation is 202 with exactly the fields of the summary, and a Location", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const node = (yield* api.request("GET", "/api/nodes")).json[0]
        const answer = yield* api.request("POST", "/api/servers", { body: { blueprint_id: "kept" } })
        assert.strictEqual(answer.status, 202)
        assert.strictEqual(answer.headers.get("content-type"), "application/json")
        const { id, allocations } = answer.json
        assert.match(id, serverId)
        assert.strictEqual(answer.headers.get("location"), `/api/servers/${id}`)
        const { port } = allocations.default
        assert.isTrue(port >= 26100 && port <= 26199, String(port))
        const expected = {
          id,
          blueprint_id: "kept",
          node_name: node.name,
          node_id: node.id,
          allocations: {
            force_outgoing_ip: false,
            default: { ip: "127.0.0.1", port },
            alias: "",
            mappings: { "127.0.0.1": [port] }
          }
        }
        assert.deepStrictEqual(answer.json, expected)
        assert.deepStrictEqual((yield* api.request("GET", `/api/servers/${id}`)).json, expected)
        yield* removed(id)
      })
    )

    it.effect("the list is sorted by creation; with ids_only=true it has ids only", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const made = yield* Effect.all(
          Array.from({ length: 5 }, () => create(api, "kept")),
          { concurrency: "unbounded" }
        )
        assert.strictEqual(new Set(made).size, 5)
        const ids = (yield* api.request("GET", "/api/servers?ids_only=true")).json
        assert.deepStrictEqual(ids.toSorted(), made.toSorted())
        const { json } = yield* api.request("GET", "/api/servers")
        assert.deepStrictEqual(
          json.map((server: { readonly id: string }) => server.id),
          ids
        )
        for (const server of json) assert.deepStrictEqual(keysOf(server), summary)
        const ports = json.map(
          (server: { allocations: { default: { port: number } } }) => server.allocations.default.port
        )
        assert.strictEqual(new Set(ports).size, 5)
        for (const other of ["?ids_only=", "?ids_only=false", "?ids_only=TRUE", "?include="]) {
          assert.deepStrictEqual((yield* api.request("GET", `/api/servers${other}`)).json, json)
        }
        yield* Effect.forEach(made, removed, { discard: true })
        assert.deepStrictEqual((yield* api.request("GET", "/api/servers")).json, [])
      })
    )

    it.effect("spec 3.6: include= adds its fields, and created_at", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* create(api, "kept")
        for (const [include, added] of [
          ["status", ["status"]],
          ["limits", ["limits"]],
          ["software", ["image", "software", "version"]],
          ["status,limits,software", ["image", "limits", "software", "status", "version"]],
          ["software,status", ["image", "software", "status", "version"]]
        ] as const) {
          const expected = [...summary, ...added, "created_at"].toSorted()
          const one = yield* expectStatus(api, 200, "GET", `/api/servers/${id}?include=${include}`)
          assert.deepStrictEqual(keysOf(one.json), expected)
          assert.match(one.json.created_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
          const all = yield* expectStatus(api, 200, "GET", `/api/servers?include=${include}`)
          assert.deepStrictEqual(keysOf(all.json[0]), expected)
        }
        const full = yield* expectStatus(api, 200, "GET", `/api/servers/${id}?include=limits,software`)
        assert.deepStrictEqual(full.json.limits, { memory_limit: 64 })
        assert.deepStrictEqual([full.json.software, full.json.version], ["game", "1.0"])
        yield* removed(id)
      })
    )

    it.effect("the response contains exactly the given overrides", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const overrides = {
          save: false,
          limits: { memory_limit: 96.5, threads: "0-1", oom_disabled: true },
          configs: {
            "server.properties": { parser: "properties", find: { motd: "Hi", deep: { a: [1, null, "x"] } } }
          },
          version: "2.0",
          env: { MOTD: "hi ü", __proto__x: "", A_1: "=" }
        }
        const made = yield* expectStatus(api, 202, "POST", "/api/servers", {
          body: { blueprint_id: "kept", overrides }
        })
        assert.deepStrictEqual(made.json.overrides, overrides)
        assert.deepStrictEqual(keysOf(made.json), [...summary, "overrides"].toSorted())
        const got = yield* expectStatus(
          api,
          200,
          "GET",
          `/api/servers/${made.json.id}?include=limits,software`
        )
        assert.deepStrictEqual(got.json.overrides, overrides)
        assert.deepStrictEqual(got.json.limits, { memory_limit: 96.5, threads: "0-1", oom_disabled: true })
        assert.strictEqual(got.json.version, "2.0")
        yield* removed(made.json.id)
        for (const none of [{}, null, { save: null, limits: null }]) {
          const { json } = yield* expectStatus(api, 202, "POST", "/api/servers", {
            body: { blueprint_id: "kept", overrides: none }
          })
          assert.deepStrictEqual(keysOf(json), summary)
          yield* removed(json.id)
        }
      })
    )

    it.effect("404 and 422 create nothing", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const before = yield* count
        for (const [body, status] of [
          [{ blueprint_id: "nope" }, 404],
          [{ blueprint_id: "__proto__" }, 404],
          [{ blueprint_id: "kept", node_id: "nope" }, 404],
          [{ blueprint_id: "kept", node_id: " " }, 404],
          [{ blueprint_id: "kept", overrides: { software: "nope" } }, 422],
          [{ blueprint_id: "kept", overrides: { configs: { "../x": { parser: "file", find: {} } } } }, 422],
          [{ blueprint_id: "kept", overrides: { configs: { x: { find: {} } } } }, 422],
          [{ blueprint_id: "kept", overrides: { limits: { memory_limit: 1e300 } } }, 422]
        ] as const) {
          assertError(yield* api.request("POST", "/api/servers", { body }), status)
        }
        const full = { blueprint_id: "kept", overrides: { limits: { memory_limit: 64 * 1024 * 1024 } } }
        assertError(yield* api.request("POST", "/api/servers", { body: full }), 503)
        assert.strictEqual(yield* count, before)
      })
    )
  })

  describe("spec 3.3: Idempotency-Key", () => {
    const ask = Effect.fnUntraced(function* (key: string, body: unknown, raw?: string) {
      const api = yield* Muster
      const headers = { "idempotency-key": key }
      return yield* api.request(
        "POST",
        "/api/servers",
        raw === undefined ? { body, headers } : { raw, headers }
      )
    })

    it.effect("the same body returns the first response again; another body is 409", () =>
      Effect.gen(function* () {
        const before = yield* count
        const body = { blueprint_id: "kept", overrides: { env: { A: "1" } } }
        const first = yield* ask("key 1", body)
        assert.strictEqual(first.status, 202)
        const again = yield* ask("key 1", body)
        assert.strictEqual(again.status, 202)
        assert.strictEqual(again.text, first.text)
        assert.strictEqual(again.headers.get("location"), first.headers.get("location"))
        const spaced = yield* ask("key 1", undefined, JSON.stringify(body, null, 3))
        assert.strictEqual(spaced.text, first.text)
        const other = yield* ask("key 1", { ...body, start: true })
        assertError(other, 409, "the idempotency key was used with another body")
        assert.strictEqual(yield* count, before + 1)
        const second = yield* ask("key 2", body)
        assert.notStrictEqual(second.json.id, first.json.id)
        yield* removed(first.json.id)
        assert.strictEqual((yield* ask("key 1", body)).text, first.text)
        yield* removed(second.json.id)
        assert.strictEqual(yield* count, before)
      })
    )

    it.effect("a refused request does not use up the idempotency key", () =>
      Effect.gen(function* () {
        assertError(yield* ask("free", { blueprint_id: "nope" }), 404)
        const made = yield* ask("free", { blueprint_id: "kept" })
        assert.strictEqual(made.status, 202)
        yield* removed(made.json.id)
      })
    )

    it.effect("twenty concurrent requests create one server", () =>
      Effect.gen(function* () {
        const before = yield* count
        const answers = yield* Effect.all(
          Array.from({ length: 20 }, () => ask("at once", { blueprint_id: "kept" })),
          { concurrency: "unbounded" }
        )
        assert.deepStrictEqual([...new Set(answers.map(({ status }) => status))], [202])
        assert.strictEqual(new Set(answers.map(({ text }) => text)).size, 1)
        assert.strictEqual(yield* count, before + 1)
        yield* removed(answers[0]?.json.id)
      })
    )

    it.effect("each API key has its own idempotency keys, of 1-128 printable characters", () =>
      Effect.gen(function* () {
        const made = yield* ask("~".repeat(128), { blueprint_id: "kept" })
        assert.strictEqual(made.status, 202)
        yield* removed(made.json.id)
        assertError(yield* ask("~".repeat(129), { blueprint_id: "kept" }), 422)
      })
    )
  })
})
