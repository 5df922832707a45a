import { execFileSync } from "node:child_process"
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import type { Muster } from "../../support/Muster.ts"
import { expectStatus } from "../../support/servers.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import { Far, places, scene } from "./support/files.ts"
import { assertError, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

type Api = Pick<Muster["Service"], "request" | "key" | "url">

const waiting = (api: Api) => ({ authorization: `Bearer ${api.key}`, prefer: "wait=60" })

/** Begins a backup and waits for its end; returns it and its operation. */
const backedUp = Effect.fnUntraced(function* (api: Api, server: string, body: object = {}) {
  const path = `/api/servers/${server}/backups`
  const begun = yield* expectStatus(api, 202, "POST", path, { body, headers: waiting(api) })
  const [newest] = (yield* expectStatus(api, 200, "GET", path)).json
  return { operation: begun.json, backup: newest, location: begun.headers.get("location") }
})

const idsOf = (api: Api, query: string) =>
  Effect.map(
    expectStatus(api, 200, "GET", `/api/backups${query}`),
    ({ json }): ReadonlyArray<string> => json.map(({ id }: { readonly id: string }) => id)
  )

/** Downloads an archive, and returns the contents of one of its files. */
const fileIn = Effect.fnUntraced(function* (api: Api, backup: string, name: string) {
  const folder = yield* temporaryFolder
  const archive = join(folder, "backup.tar.zst")
  const bytes = yield* Effect.promise(() =>
    fetch(`${api.url}/api/backups/${backup}/archive`, {
      headers: { authorization: `Bearer ${api.key}` }
    }).then((response) => response.arrayBuffer())
  )
  writeFileSync(archive, Buffer.from(bytes))
  execFileSync("tar", ["--zstd", "-xf", archive, "-C", folder])
  return { text: readFileSync(join(folder, name), "utf8"), bytes: bytes.byteLength }
})

layer(Layer.provideMerge(Far.layer, service()), options)("backups", (it) => {
  describe("spec 12.1: the routes", () => {
    it.effect.each(places)(
      "%s: a backup is made, shown, verified, downloaded, changed and deleted",
      (place) =>
        Effect.gen(function* () {
          const { api, files, id: server } = yield* scene(place)
          assert.strictEqual((yield* files.put("/world/level.dat", "level")).status, 201)
          const { backup, location, operation } = yield* backedUp(api, server, {
            name: "before the event",
            kind: "full"
          })
          assert.deepInclude(operation, { kind: "backup.create", server_id: server, state: "done" })
          assert.strictEqual(location, `/api/operations/${operation.id}`)
          assert.deepInclude(backup, {
            server_id: server,
            blueprint_id: "kept",
            name: "before the event",
            state: "done",
            kind: "full",
            target: "node",
            operation_id: operation.id,
            consistency: "stopped",
            changed_files: 0,
            pinned: false
          })
          const path = `/api/backups/${backup.id}`
          assert.deepStrictEqual((yield* expectStatus(api, 200, "GET", path)).json, backup)
          const { bytes, text } = yield* fileIn(api, backup.id, "world/level.dat")
          assert.strictEqual(text, "level")
          assert.strictEqual(bytes, backup.stored_bytes)
          const { ticket } = (yield* expectStatus(api, 201, "POST", "/api/events/tickets")).json
          yield* expectStatus(api, 200, "GET", `${path}/archive?ticket=${ticket}`, { key: null })
          const verified = yield* expectStatus(api, 202, "POST", `${path}/verify`, { headers: waiting(api) })
          assert.deepInclude(verified.json, { kind: "backup.verify", state: "done" })
          const body = { name: null, labels: { kept: "yes" }, pinned: true, expires_in: 3600 }
          const changed = (yield* expectStatus(api, 200, "PATCH", path, { body })).json
          assert.deepInclude(changed, { labels: { kept: "yes" }, pinned: true })
          assert.notProperty(changed, "name")
          assert.isAbove(Date.parse(changed.expires_at), Date.now() + 3_000_000)
          yield* expectStatus(api, 204, "DELETE", path)
          assertError(yield* api.request("GET", path), 404, `backup not found: ${backup.id}`)
          assertError(yield* api.request("GET", `${path}/archive`), 404)
          const entries = (yield* expectStatus(api, 200, "GET", "/api/audit?limit=10&result=ok")).json
          const actions = entries.map(({ action }: { readonly action: string }) => action)
          for (const action of ["create", "read", "verify", "change", "delete"])
            assert.include(actions, `backup.${action}`)
        })
    )

    it.effect.each(places)("%s: a backup that no restore fits says so, and is done", (place) =>
      Effect.gen(function* () {
        const { api, files, id: server } = yield* scene(place)
        assert.strictEqual((yield* files.put("/world/level.dat", "x".repeat(3_000_000))).status, 201)
        const body = { overrides: { limits: { disk_space: 2 } } }
        yield* expectStatus(api, 200, "PATCH", `/api/servers/${server}`, { body })
        const { backup } = yield* backedUp(api, server)
        assert.match(`${backup.state}: ${backup.reason}`, /^done: a restore of it needs 3\.\d MB, and /)
      })
    )

    it.effect.each(places)(
      "%s: spec 12.12: a backup of what the server has written has all files in a download",
      (place) =>
        Effect.gen(function* () {
          const { api, files, id: server } = yield* scene(place)
          const script = (yield* files.get("/server.sh")).text
          assert.strictEqual((yield* files.put("/world/level.dat", "level")).status, 201)
          const { backup, operation } = yield* backedUp(api, server, { kind: "written" })
          assert.strictEqual(operation.state, "done", operation.reason)
          assert.strictEqual(backup.kind, "written")
          assert.match(backup.base.digest, /^[0-9a-f]{64}$/)
          const path = `/api/backups/${backup.id}`
          assert.strictEqual((yield* fileIn(api, backup.id, "world/level.dat")).text, "level")
          assert.strictEqual((yield* fileIn(api, backup.id, "server.sh")).text, script)
          const head = yield* expectStatus(api, 200, "HEAD", `${path}/archive`)
          const etag = head.headers.get("etag") ?? ""
          const size = Number(head.headers.get("content-length"))
          assert.match(etag, /^"1-[0-9a-f]{64}"$/)
          const asked = (given: Record<string, string>) => ({
            headers: { authorization: `Bearer ${api.key}`, ...given }
          })
          const got = (given: Record<string, string>) =>
            Effect.promise(() =>
              fetch(`${api.url}${path}/archive`, asked(given)).then(async (response) => ({
                status: response.status,
                range: response.headers.get("content-range"),
                bytes: Buffer.from(await response.arrayBuffer())
              }))
            )
          const whole = yield* got({})
          assert.deepStrictEqual([whole.status, whole.bytes.length], [200, size])
          const rest = yield* got({ range: "bytes=1000-", "if-range": etag })
          assert.deepStrictEqual([rest.status, rest.range], [206, `bytes 1000-${size - 1}/${size}`])
          assert.isTrue(rest.bytes.equals(whole.bytes.subarray(1000)))
          assert.strictEqual((yield* got({ range: "bytes=1000-", "if-range": '"other"' })).status, 200)
          yield* expectStatus(api, 304, "GET", `${path}/archive`, asked({ "if-none-match": etag }))
          assertError(yield* api.request("GET", `${path}/archive`, asked({ range: `bytes=${size}-` })), 416)
          const entries = (yield* expectStatus(api, 200, "GET", `${path}/files`)).json
          assert.includeMembers(
            entries.map(({ name }: { readonly name: string }) => name),
            ["server.sh", "world"]
          )
          const one = yield* expectStatus(api, 200, "GET", `${path}/files/content?path=/server.sh`)
          assert.strictEqual(one.text, script)
          const verified = yield* expectStatus(api, 202, "POST", `${path}/verify`, { headers: waiting(api) })
          assert.strictEqual(verified.json.state, "done")
          assert.strictEqual((yield* files.put("/world/level.dat", "later")).status, 204)
          const body = { backup_id: backup.id, safety: false }
          const dry = yield* expectStatus(api, 200, "POST", `/api/servers/${server}/restore?dry_run=true`, {
            body
          })
          assert.deepStrictEqual(
            [dry.json.created.first, dry.json.changed.first, dry.json.removed.first],
            [[], ["/world/level.dat"], []]
          )
          const restored = yield* expectStatus(api, 202, "POST", `/api/servers/${server}/restore`, {
            body,
            headers: waiting(api)
          })
          assert.strictEqual(restored.json.state, "done", restored.json.reason)
          assert.strictEqual((yield* files.get("/world/level.dat")).text, "level")
          assertError(
            yield* api.request("POST", `/api/servers/${server}/backups`, { body: { kind: "base" } }),
            422
          )
        })
    )

    it.effect("lists are newest first, in pages, and select by server, blueprint, label and state", () =>
      Effect.gen(function* () {
        const { api, id: server } = yield* scene("embedded")
        const first = (yield* backedUp(api, server, { labels: { tier: "gold" } })).backup.id
        const second = (yield* backedUp(api, server)).backup.id
        assert.deepStrictEqual(yield* idsOf(api, `?server_id=${server}`), [second, first])
        assert.deepStrictEqual(yield* idsOf(api, `?server_id=${server}&label=tier=gold`), [first])
        assert.deepStrictEqual(yield* idsOf(api, `?server_id=${server}&state=failed`), [])
        assert.deepStrictEqual(yield* idsOf(api, `?server_id=${server}&blueprint_id=other`), [])
        assert.deepStrictEqual(yield* idsOf(api, `?server_id=${server}&target=other`), [])
        assert.deepStrictEqual(yield* idsOf(api, `?server_id=${server}&target=node`), [second, first])
        assert.deepStrictEqual(yield* idsOf(api, `?server_id=${server}&since=2100-01-01T00:00:00Z`), [])
        const page = yield* expectStatus(api, 200, "GET", `/api/backups?server_id=${server}&limit=1`)
        const link = /<([^>]+)>; rel="next"/.exec(page.headers.get("link") ?? "")?.[1] ?? ""
        const next = yield* expectStatus(api, 200, "GET", link)
        assert.deepStrictEqual([page.json[0].id, next.json[0].id], [second, first])
        assert.isNull(next.headers.get("link"))
        for (const query of ["limit=0", "state=over", "after=nothing", "label=%3Da", "since=yesterday"])
          assertError(yield* api.request("GET", `/api/backups?${query}`), 422)
      })
    )

    it.effect("POST /api/backups backs up all selected servers, with an outcome for each", () =>
      Effect.gen(function* () {
        const { api, id: first } = yield* scene("embedded")
        const { id: second } = yield* scene("embedded")
        const selector = { ids: [first, second, "unknown00000"] }
        const { json } = yield* expectStatus(api, 200, "POST", "/api/backups", {
          body: { selector, name: "all" }
        })
        assert.deepInclude(json, { [first]: { status: 200 }, [second]: { status: 200 } })
        assert.strictEqual(json.unknown00000.code, "404")
        for (const id of [first, second]) {
          const [made] = yield* eventually(
            Effect.map(expectStatus(api, 200, "GET", `/api/servers/${id}/backups`), (answer) => answer.json),
            ([backup]) => backup?.state === "done"
          )
          assert.strictEqual(made.name, "all")
        }
        assertError(yield* api.request("POST", "/api/backups", { body: { selector: {} } }), 422)
      })
    )

    it.effect("backups outlive their server; verification then needs it, a download does not", () =>
      Effect.gen(function* () {
        const { api, files, id: server } = yield* scene("embedded")
        yield* files.put("/a.txt", "a")
        const { backup } = yield* backedUp(api, server)
        yield* expectStatus(api, 200, "DELETE", `/api/servers/${server}`)
        assert.deepStrictEqual(yield* idsOf(api, `?server_id=${server}`), [backup.id])
        assert.strictEqual((yield* fileIn(api, backup.id, "a.txt")).text, "a")
        assertError(
          yield* api.request("POST", `/api/backups/${backup.id}/verify`),
          409,
          `the server of the backup was deleted: ${server}`
        )
        yield* expectStatus(api, 204, "DELETE", `/api/backups/${backup.id}`)
      })
    )

    it.effect(
      "the metrics have the age and the bytes of the good backups of a blueprint, and the outcomes",
      () =>
        Effect.gen(function* () {
          const { api, id: server } = yield* scene("embedded")
          const { backup } = yield* backedUp(api, server)
          const { text } = yield* api.request("GET", "/metrics")
          const valueOf = (name: string, labels: string) =>
            Number(new RegExp(`^muster_${name}\\{${labels}\\} (\\S+)$`, "m").exec(text)?.[1])
          const outcome = 'kind="backup.create",outcome="done"'
          assert.isAtLeast(valueOf("operations_total", outcome), 1)
          assert.isAtLeast(valueOf("operation_duration_seconds_count", outcome), 1)
          const age = valueOf("backup_newest_age_seconds", 'blueprint="kept"')
          assert.isAtMost(Math.abs(age - (Date.now() - Date.parse(backup.created_at)) / 1000), 5)
          const good = (yield* expectStatus(api, 200, "GET", "/api/backups?state=done&limit=100")).json
          const stored = good.reduce(
            (sum: number, one: { readonly stored_bytes: number }) => sum + one.stored_bytes,
            0
          )
          assert.strictEqual(valueOf("backup_stored_bytes", 'blueprint="kept"'), stored)
        })
    )

    it.effect("an expired backup is removed unless it is pinned", () =>
      Effect.gen(function* () {
        const { api, id: server } = yield* scene("embedded")
        const pinned = (yield* backedUp(api, server, { expires_in: 10, pinned: true })).backup.id
        const expiring = (yield* backedUp(api, server, { expires_in: 10 })).backup.id
        yield* eventually(idsOf(api, `?server_id=${server}`), (ids) => !ids.includes(expiring))
        assert.deepStrictEqual(yield* idsOf(api, `?server_id=${server}`), [pinned])
      })
    )
  })

  describe("spec 12.4: one task a server", () => {
    it.effect("a second backup, a reset, an upgrade and a deletion are 409 and name the operation", () =>
      Effect.gen(function* () {
        const { api, files, id: server } = yield* scene("embedded")
        // Random contents keep the backup busy for the requests below.
        const noise = Array.from({ length: 200_000 }, () => Math.random().toString(36)).join("")
        for (let n = 0; n < 8; n++) assert.strictEqual((yield* files.put(`/noise${n}`, noise)).status, 201)
        const begun = yield* expectStatus(api, 202, "POST", `/api/servers/${server}/backups`, { body: {} })
        const detail = `operation ${begun.json.id} (backup.create) works on the server: ${server}`
        for (const [method, path, body] of [
          ["POST", "/backups", {}],
          ["POST", "/reset", undefined],
          ["POST", "/reinstall", undefined],
          ["PATCH", "", { overrides: { env: { A: "b" } } }],
          ["DELETE", "", undefined]
        ] as const) {
          const response = yield* api.request(method, `/api/servers/${server}${path}`, {
            ...(body === undefined ? {} : { body })
          })
          assertError(response, 409, detail)
        }
        const [backup] = (yield* expectStatus(api, 200, "GET", `/api/servers/${server}/backups`)).json
        assertError(yield* api.request("DELETE", `/api/backups/${backup.id}`), 409)
        yield* expectStatus(api, 202, "DELETE", `/api/operations/${begun.json.id}`)
        const failed = yield* eventually(
          Effect.map(expectStatus(api, 200, "GET", `/api/backups/${backup.id}`), ({ json }) => json),
          ({ state }) => state === "failed"
        )
        assert.strictEqual(failed.reason, "a caller has cancelled it")
        yield* backedUp(api, server)
      })
    )
  })

  describe("spec 12.1: rights", () => {
    it.effect(
      "backups makes and downloads, restore also deletes, other keys and foreign servers get none",
      () =>
        Effect.gen(function* () {
          const { api, id: server } = yield* scene("embedded")
          const other = (yield* scene("embedded")).id
          const keeper = yield* keyed("Operator", { allow: ["backups"], servers: [server] })
          const { backup } = yield* backedUp(keeper, server)
          const foreign = (yield* backedUp(api, other)).backup
          assert.deepStrictEqual(yield* idsOf(keeper, ""), [backup.id])
          assertError(yield* keeper.request("GET", `/api/backups/${foreign.id}`), 404)
          assertError(yield* keeper.request("GET", `/api/backups/${foreign.id}/archive`), 404)
          assertError(yield* keeper.request("POST", `/api/servers/${other}/backups`, { body: {} }), 404)
          assertError(yield* keeper.request("DELETE", `/api/backups/${backup.id}`), 403)
          const operator = yield* keyed("Operator")
          for (const path of [`/api/backups/${backup.id}`, "/api/backups", `/api/servers/${server}/backups`])
            assertError(yield* operator.request("GET", path), 403)
          assertError(yield* operator.request("GET", `/api/operations/${backup.operation_id}`), 404)
          const restorer = yield* keyed("Operator", { allow: ["restore"] })
          assert.include(yield* idsOf(restorer, ""), backup.id)
          yield* expectStatus(restorer, 204, "DELETE", `/api/backups/${backup.id}`)
          const body = { name: "x", scope: "Operator", allow: ["browse", "backups"], paths: ["/a"] }
          assertError(yield* api.request("POST", "/api/keys", { body }), 422)
        })
    )

    it.effect("the topic backup has an event for each state, for keys with the right", () =>
      Effect.gen(function* () {
        const { api, id: server } = yield* scene("embedded")
        const query = `/api/events?topics=backup&server_id=${server}`
        const seen = yield* subscribe(api, query)
        const blind = yield* keyed("Operator")
        const hidden = yield* subscribe(blind, query)
        const { backup } = yield* backedUp(api, server)
        yield* expectStatus(api, 204, "DELETE", `/api/backups/${backup.id}`)
        const events = yield* eventually(
          Effect.sync(() => seen.events()),
          (all) => all.length >= 4
        )
        assert.deepStrictEqual(
          events.map((event) => [event.Topic, event.Topic === "backup" ? event.Data.payload.state : ""]),
          [
            ["backup", "queued"],
            ["backup", "copying"],
            ["backup", "done"],
            ["backup", "deleting"]
          ]
        )
        assert.deepStrictEqual(hidden.events(), [])
      })
    )
  })
})
