/** Deleted servers that are kept for an undelete. */
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { eventsAre, subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import type { Muster } from "../../support/Muster.ts"
import { becomes, expectStatus, installed, powered, running } from "../../support/servers.ts"
import { Far, filesOf, places, scene } from "./support/files.ts"
import { assertError, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

type Api = Pick<Muster["Service"], "request" | "key" | "url">

const summaryOf = (api: Api, id: string, include: string) =>
  Effect.map(expectStatus(api, 200, "GET", `/api/servers/${id}?include=${include}`), ({ json }) => json)

/** Returns the deleted server with an id, if it is kept. */
const keptOf = (api: Api, id: string) =>
  Effect.map(
    expectStatus(api, 200, "GET", `/api/servers?deleted=true&include=status,name&q=${id}`),
    ({ json }) => json[0]
  )

/** Starts a server, waits until it runs, and deletes it. */
const deleted = Effect.fnUntraced(function* (api: Api, id: string, query = "") {
  yield* powered(api, id, "start")
  yield* becomes(api, id, "running")
  yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}${query}`)
})

const undeleted = (api: Api, id: string) =>
  Effect.map(expectStatus(api, 202, "POST", `/api/servers/${id}/undelete`), ({ json }) => json)

layer(Layer.provideMerge(Far.layer, service()), options)("undelete", (it) => {
  describe("spec 3.19: deleted servers", () => {
    it.effect.each(places)(
      "%s: a server comes back offline, with its files, ports, name and labels",
      (place) =>
        Effect.gen(function* () {
          const { api, files, id } = yield* scene(place)
          const body = { name: `back-${place}`, labels: { tier: "gold" } }
          yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body })
          yield* files.put("/world/level.dat", "level")
          const before = yield* summaryOf(api, id, "name,labels,definition")
          const from = Date.now()
          yield* deleted(api, id)
          assertError(
            yield* api.request("GET", `/api/servers/${id}`),
            404,
            /it was deleted at .*: a caller deleted it$/
          )
          const kept = yield* keptOf(api, id)
          assert.deepInclude(kept, { id, name: `back-${place}`, status: "offline", node_id: before.node_id })
          assert.isAtLeast(Date.parse(kept.deleted_at), from)
          assert.strictEqual(Date.parse(kept.purge_at) - Date.parse(kept.deleted_at), 7 * 86_400_000)
          const summary = yield* undeleted(api, id)
          assert.deepInclude(summary, { id, status: "offline", allocations: before.allocations })
          assert.notProperty(summary, "ports_changed")
          assert.deepStrictEqual(
            { ...(yield* summaryOf(api, id, "name,labels,definition")), created_at: before.created_at },
            before
          )
          assert.strictEqual((yield* files.get("/world/level.dat")).text, "level")
          assert.isUndefined(yield* keptOf(api, id))
          assertError(yield* api.request("POST", `/api/servers/${id}/undelete`), 404)
          yield* powered(api, id, "start")
          yield* becomes(api, id, "running")
          // A second deletion keeps it as the first did.
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
          yield* undeleted(api, id)
          assert.strictEqual((yield* files.get("/world/level.dat")).text, "level")
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}?purge=true`)
        })
    )

    it.effect("only a saved server that has run is kept, and no one with purge=true", () =>
      Effect.gen(function* () {
        const { api, id: fresh } = yield* scene("embedded")
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${fresh}`)
        const passing = yield* running(api, "passing")
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${passing}`)
        const purged = yield* installed(api, "kept")
        yield* deleted(api, purged, "?purge=true")
        for (const id of [fresh, passing, purged]) {
          assert.isUndefined(yield* keptOf(api, id))
          assertError(yield* api.request("POST", `/api/servers/${id}/undelete`), 404, /it was deleted at /)
        }
      })
    )

    it.effect("purge=true ends a kept server, whose files its node removes", () =>
      Effect.gen(function* () {
        const { api, id } = yield* scene("embedded")
        yield* deleted(api, id)
        assertError(yield* api.request("DELETE", `/api/servers/${id}`), 404)
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}?purge=true`)
        assertError(yield* api.request("DELETE", `/api/servers/${id}?purge=true`), 404)
        assertError(yield* api.request("POST", `/api/servers/${id}/undelete`), 404)
      })
    )

    it.effect("bulk deletions keep servers, and one event says that each is deleted and is back", () =>
      Effect.gen(function* () {
        const { api, id } = yield* scene("embedded")
        yield* powered(api, id, "start")
        yield* becomes(api, id, "running")
        const events = yield* subscribe(api)
        const selector = { ids: [id] }
        const outcomes = yield* expectStatus(api, 200, "DELETE", "/api/servers", { body: { selector } })
        assert.deepStrictEqual(outcomes.json, { [id]: { status: 200 } })
        assert.isDefined(yield* keptOf(api, id))
        yield* undeleted(api, id)
        yield* eventsAre(events, id, ["deleted", "offline"])
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}?purge=true`)
      })
    )

    it.effect("undelete needs the rights delete and create, the servers of the key, and its quota", () =>
      Effect.gen(function* () {
        const { api, id } = yield* scene("embedded")
        yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body: { labels: { team: "a" } } })
        yield* deleted(api, id)
        const path = `/api/servers/${id}/undelete`
        for (const allow of [["delete"], ["create"]] as const) {
          const one = yield* keyed("Operator", { allow: ["read", ...allow] })
          assertError(yield* one.request("POST", path), 403)
        }
        const other = yield* keyed("Operator", {
          allow: ["read", "delete", "create"],
          labels: { team: "b" }
        })
        assertError(yield* other.request("POST", path), 404)
        assert.deepStrictEqual((yield* expectStatus(other, 200, "GET", "/api/servers?deleted=true")).json, [])
        const own = yield* keyed("Operator", {
          allow: ["read", "delete", "create"],
          labels: { team: "a" }
        })
        assert.strictEqual((yield* undeleted(own, id)).id, id)
        const entries = (yield* expectStatus(
          api,
          200,
          "GET",
          `/api/audit?object=${id}&action=server.undelete`
        )).json
        assert.deepInclude(entries[0], { result: { status: 202 } })
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}?purge=true`)
      })
    )

    it.effect("the oldest deletion is purged once another server needs its disk", () =>
      Effect.gen(function* () {
        const { api, id: any } = yield* scene("embedded")
        const { node_id } = yield* summaryOf(api, any, "name")
        const { capacity } = (yield* expectStatus(api, 200, "GET", `/api/nodes/${node_id}`)).json
        const disk_space = Math.floor((capacity.disk_bytes / 1_000_000) * 0.4)
        const body = { node_id, overrides: { limits: { disk_space } } }
        const ids: Array<string> = []
        for (let n = 0; n < 2; n++) {
          const id = yield* installed(api, "kept", body)
          yield* deleted(api, id)
          ids.push(id)
        }
        const [oldest = "", newest = ""] = ids
        assert.isDefined(yield* keptOf(api, oldest))
        const other = yield* installed(api, "kept", body)
        yield* eventually(keptOf(api, oldest), (kept) => kept === undefined)
        assert.isDefined(yield* keptOf(api, newest))
        for (const id of [other, newest, any])
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}?purge=true`)
      })
    )

    it.effect(
      "a key that takes the disk purges its own deleted servers, not the older ones of another key",
      () =>
        Effect.gen(function* () {
          const { api, id: any } = yield* scene("embedded")
          const { node_id } = yield* summaryOf(api, any, "name")
          const { capacity } = (yield* expectStatus(api, 200, "GET", `/api/nodes/${node_id}`)).json
          const disk_space = Math.floor((capacity.disk_bytes / 1_000_000) * 0.4)
          const body = { node_id, overrides: { limits: { disk_space } } }
          const small = yield* keyed("Operator", {
            allow: ["read", "create", "delete", "power", "change"],
            max_servers: 1
          })
          const others = yield* installed(api, "kept", body)
          yield* deleted(api, others)
          const own: Array<string> = []
          for (let n = 0; n < 3; n++) {
            const id = yield* installed(small, "kept", body)
            yield* deleted(small, id)
            own.push(id)
          }
          const last = yield* installed(small, "kept", body)
          for (const id of own) yield* eventually(keptOf(api, id), (kept) => kept === undefined)
          assert.isDefined(yield* keptOf(api, others))
          for (const id of [last, others, any])
            yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}?purge=true`)
        })
    )

    it.effect("lists page, filter and refuse an unknown place", () =>
      Effect.gen(function* () {
        const { api } = yield* scene("embedded")
        const ids: Array<string> = []
        for (const name of ["page-1", "page-2"]) {
          const id = yield* installed(api, "kept", { name, labels: { list: "pages" } })
          yield* deleted(api, id)
          ids.unshift(id)
        }
        const query = "/api/servers?deleted=true&label=list=pages"
        const all = (yield* expectStatus(api, 200, "GET", `${query}&ids_only=true`)).json
        assert.deepStrictEqual(all, ids)
        const first = yield* expectStatus(api, 200, "GET", `${query}&limit=1`)
        const link = /<([^>]+)>; rel="next"/.exec(first.headers.get("link") ?? "")?.[1] ?? ""
        const next = yield* expectStatus(api, 200, "GET", link)
        assert.deepStrictEqual([first.json[0].id, next.json[0].id], ids)
        assert.isNull(next.headers.get("link"))
        assertError(yield* api.request("GET", "/api/servers?deleted=true&after=nothing"), 422)
        for (const id of ids) yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}?purge=true`)
      })
    )
  })
})

const twoPorts = service({ MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26320-26321" })

layer(twoPorts, options)("undelete, with two ports", (it) => {
  describe("spec 3.19: ports", () => {
    it.effect("the ports are free at once; a server whose port is taken gets another one", () =>
      Effect.gen(function* () {
        const { api, id } = yield* scene("embedded")
        yield* deleted(api, id)
        const other = yield* installed(api, "kept")
        const last = yield* installed(api, "kept")
        assertError(yield* api.request("POST", `/api/servers/${id}/undelete`), 503, /^node is full/)
        assert.strictEqual((yield* summaryOf(api, last, "name")).allocations.default.port, 26320)
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${other}`)
        const back = yield* undeleted(api, id)
        assert.deepInclude(back.allocations, {
          default: { ip: "127.0.0.1", port: 26321 },
          mappings: { "127.0.0.1": [26321] }
        })
        assert.deepStrictEqual(back.ports_changed, [{ from: "127.0.0.1:26320", to: "127.0.0.1:26321" }])
        yield* powered(api, id, "start")
        yield* becomes(api, id, "running")
      })
    )
  })
})

layer(service({ MUSTER_KEEP_DELETED: "0" }), options)("undelete, off", (it) => {
  describe("spec 3.19: MUSTER_KEEP_DELETED", () => {
    it.effect("0 keeps no server", () =>
      Effect.gen(function* () {
        const { api, id } = yield* scene("embedded")
        yield* filesOf(api, id).put("/a.txt", "a")
        yield* deleted(api, id)
        assert.isUndefined(yield* keptOf(api, id))
        assertError(yield* api.request("POST", `/api/servers/${id}/undelete`), 404)
        const system = (yield* expectStatus(api, 200, "GET", "/api/system?include=keep_deleted")).json
        assert.strictEqual(system.keep_deleted_seconds, 0)
      })
    )
  })
})

layer(service({ MUSTER_KEEP_DELETED: "2s" }), options)("undelete, for a short time", (it) => {
  describe("spec 3.19: MUSTER_KEEP_DELETED", () => {
    it.effect("a server is purged once its time is over", () =>
      Effect.gen(function* () {
        const { api, id } = yield* scene("embedded")
        yield* deleted(api, id)
        assert.isDefined(yield* keptOf(api, id))
        yield* eventually(keptOf(api, id), (kept) => kept === undefined)
        assertError(yield* api.request("POST", `/api/servers/${id}/undelete`), 404)
      })
    )
  })
})
