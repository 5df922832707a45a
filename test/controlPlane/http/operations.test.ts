import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import * as fc from "fast-check"
import { OperationKind, OperationState } from "../../../src/contract/domain/Operation.ts"
import { storeOperation } from "../../support/database.ts"
import { subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { expectStatus, installed, powered } from "../../support/servers.ts"
import { assertError, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

type Api = Pick<Muster["Service"], "request" | "key">

const idsOf = (api: Api, query = "") =>
  Effect.map(
    expectStatus(api, 200, "GET", `/api/operations${query}`),
    ({ json }): ReadonlyArray<string> => json.map(({ id }: { readonly id: string }) => id)
  )

layer(service(), options)("operations", (it) => {
  describe("spec 11.2: the routes", () => {
    it.effect("lists are newest first, in pages, and select by server, kind and state", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "kept")
        const other = yield* installed(api, "kept")
        const [first, second] = [yield* storeOperation(api, server), yield* storeOperation(api, server)]
        const packed = yield* storeOperation(api, other, { kind: "files.pack" })
        const all = yield* idsOf(api)
        assert.deepStrictEqual(all.slice(0, 3), [packed, second, first])
        assert.deepStrictEqual(yield* idsOf(api, `?server_id=${server}`), [second, first])
        assert.deepStrictEqual(yield* idsOf(api, `?server_id=${server}&kind=files.pack`), [])
        assert.deepStrictEqual(yield* idsOf(api, `?server_id=${other}&kind=files.pack`), [packed])
        assert.deepStrictEqual(yield* idsOf(api, "?state=running"), [])
        const page = yield* expectStatus(api, 200, "GET", `/api/operations?server_id=${server}&limit=1`)
        const link = /<([^>]+)>; rel="next"/.exec(page.headers.get("link") ?? "")?.[1] ?? ""
        const next = yield* expectStatus(api, 200, "GET", link)
        assert.deepStrictEqual([page.json[0].id, next.json[0].id], [second, first])
        assert.isNull(next.headers.get("link"))
        for (const query of ["limit=0", "limit=101", "state=over", "kind=backup", "after=nothing"])
          assertError(yield* api.request("GET", `/api/operations?${query}`), 422)
      })
    )

    it.effect("a queued operation is cancelled at once and once; GET waits for an end", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "kept")
        const id = yield* storeOperation(api, server)
        const path = `/api/operations/${id}`
        const headers = { authorization: `Bearer ${api.key}`, prefer: "wait=1" }
        const waited = yield* expectStatus(api, 200, "GET", path, { headers })
        assert.strictEqual(waited.headers.get("preference-applied"), "wait")
        const { created_at, ...rest } = waited.json
        assert.deepStrictEqual(rest, { id, kind: "files.change", server_id: server, state: "queued" })
        assert.match(created_at, /^2026-01-01T/)
        const cancelled = yield* expectStatus(api, 202, "DELETE", path)
        assert.deepInclude(cancelled.json, { id, state: "cancelled", reason: "a caller has cancelled it" })
        assert.deepStrictEqual((yield* expectStatus(api, 200, "GET", path)).json, cancelled.json)
        assertError(yield* api.request("DELETE", path), 409, `operation is cancelled: ${id}`)
        const [entry] = (yield* expectStatus(api, 200, "GET", "/api/audit?limit=1&result=ok")).json
        assert.deepInclude(entry, { action: "operation.cancel", object: { kind: "operation", id } })
        for (const method of ["GET", "DELETE"] as const)
          assertError(
            yield* api.request(method, "/api/operations/nothing"),
            404,
            "operation not found: nothing"
          )
      })
    )
  })

  describe("spec 11.3: rights", () => {
    it.effect("browse sees operations of readable servers, files cancels them, other keys find none", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "kept", { labels: { team: "ops" } })
        const other = yield* installed(api, "kept")
        const id = yield* storeOperation(api, server)
        const foreign = yield* storeOperation(api, other)
        const reader = yield* keyed("ReadOnly")
        const operator = yield* keyed("Operator", { allow: ["console", "change"] })
        for (const key of [reader, operator]) {
          assert.deepStrictEqual(yield* idsOf(key), [])
          for (const method of ["GET", "DELETE"] as const)
            assertError(yield* key.request(method, `/api/operations/${id}`), 404)
        }
        const browser = yield* keyed("ReadOnly", { allow: ["browse"], labels: { team: "ops" } })
        assert.deepStrictEqual(yield* idsOf(browser), [id])
        assert.deepStrictEqual(yield* idsOf(browser, "?limit=1"), [id])
        yield* expectStatus(browser, 200, "GET", `/api/operations/${id}`)
        assertError(yield* browser.request("GET", `/api/operations/${foreign}`), 404)
        const lacks = "the API key lacks: files"
        assertError(yield* browser.request("DELETE", `/api/operations/${id}`), 403, lacks)
        const writer = yield* keyed("Operator", { allow: ["files"] })
        yield* expectStatus(writer, 202, "DELETE", `/api/operations/${id}`)
        yield* expectStatus(writer, 202, "DELETE", `/api/operations/${foreign}`)
      })
    )

    it.effect("a key that is limited to folders sees its own operations only", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "kept")
        const key = yield* keyed("Operator", { allow: ["files"], paths: ["/plugins"] })
        const foreign = yield* storeOperation(api, server)
        const own = yield* storeOperation(api, server, { created_by: key.id })
        assert.deepStrictEqual(yield* idsOf(key), [own])
        assertError(yield* key.request("GET", `/api/operations/${foreign}`), 404)
        assertError(yield* key.request("DELETE", `/api/operations/${foreign}`), 404)
        yield* expectStatus(key, 202, "DELETE", `/api/operations/${own}`)
      })
    )

    it.effect("the operations of a deleted server are shown to keys that read all servers", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "kept", { labels: { team: "gone" } })
        const id = yield* storeOperation(api, server)
        const limited = yield* keyed("ReadOnly", { allow: ["browse"], labels: { team: "gone" } })
        yield* expectStatus(limited, 200, "GET", `/api/operations/${id}`)
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${server}?force=true`)
        assertError(yield* limited.request("GET", `/api/operations/${id}`), 404)
        yield* expectStatus(api, 200, "GET", `/api/operations/${id}`)
      })
    )
  })

  it.effect("spec 11.6: keys receive the events of the operations that they see", () =>
    Effect.gen(function* () {
      const api = yield* Muster
      const server = yield* installed(api, "kept")
      const folders = yield* keyed("Operator", { allow: ["files"], paths: ["/plugins"] })
      const reader = yield* keyed("ReadOnly")
      const browser = yield* keyed("ReadOnly", { allow: ["browse"] })
      const topics = "/api/events?topics=operation,status"
      const streams = yield* Effect.forEach([api, browser, folders, reader], (key) => subscribe(key, topics))
      const ids = [
        yield* storeOperation(api, server),
        yield* storeOperation(api, server, { created_by: folders.id })
      ]
      for (const id of ids) yield* expectStatus(api, 202, "DELETE", `/api/operations/${id}`)
      yield* powered(api, server, "start")
      const seen = yield* Effect.forEach(streams, (stream) =>
        Effect.map(
          eventually(
            () => stream.of(server),
            (all) => all.includes("running")
          ),
          () => stream.events().flatMap(({ Data, Topic }) => (Topic === "operation" ? [Data.payload] : []))
        )
      )
      assert.deepStrictEqual(
        seen.map((all) => all.map(({ id, state }) => [id, state])),
        [ids, ids, ids.slice(1), []].map((own) => own.map((id) => [id, "cancelled"]))
      )
      assert.notInclude(streams.map((stream) => stream.text()).join(""), "created_by")
    })
  )

  it.effect(
    "spec 11.2: any selection returns the operations that match, whatever the size of the pages",
    () =>
      Effect.gen(function* () {
        const admin = yield* Muster
        const server = yield* installed(admin, "kept")
        for (const kind of OperationKind.literals)
          for (const state of OperationState.literals) yield* storeOperation(admin, server, { kind, state })
        const limited = yield* keyed("Operator", { allow: ["files"], servers: [server] })
        const selections = fc.record({
          api: fc.constantFrom(admin, limited),
          kind: fc.constantFrom("", ...OperationKind.literals),
          state: fc.constantFrom("", ...OperationState.literals),
          limit: fc.integer({ min: 1, max: 20 })
        })
        for (const { api, kind, limit, state } of fc.sample(selections, 40)) {
          const all = (yield* expectStatus(api, 200, "GET", "/api/operations?limit=100")).json
          const expected = all.flatMap((one: Readonly<Record<"id" | "kind" | "state", string>>) =>
            (kind === "" || one.kind === kind) && (state === "" || one.state === state) ? [one.id] : []
          )
          const found: Array<string> = []
          let path = `/api/operations?kind=${kind}&state=${state}&limit=${limit}`
          while (path !== "") {
            const page = yield* expectStatus(api, 200, "GET", path)
            found.push(...page.json.map(({ id }: { readonly id: string }) => id))
            path = /<([^>]+)>; rel="next"/.exec(page.headers.get("link") ?? "")?.[1] ?? ""
          }
          assert.deepStrictEqual(found, expected, JSON.stringify({ kind, limit, state }))
        }
      })
  )
})
