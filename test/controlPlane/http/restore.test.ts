import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { hasEnded } from "../../../src/contract/domain/Operation.ts"
import { eventually, until } from "../../support/eventually.ts"
import type { Muster } from "../../support/Muster.ts"
import { becomes, expectStatus } from "../../support/servers.ts"
import { Far, filesOf, places, scene } from "./support/files.ts"
import { assertError, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

type Api = Pick<Muster["Service"], "request" | "key" | "url">

const waiting = (api: Api) => ({ authorization: `Bearer ${api.key}`, prefer: "wait=60" })

const backupsOf = (api: Api, server: string) =>
  Effect.map(expectStatus(api, 200, "GET", `/api/servers/${server}/backups`), ({ json }) => json)

const servers = (api: Api) =>
  Effect.map(expectStatus(api, 200, "GET", "/api/servers?ids_only=true"), ({ json }) => [json])

/** Makes a backup and returns its id. */
const backedUp = Effect.fnUntraced(function* (api: Api, server: string, body: object = {}) {
  yield* expectStatus(api, 202, "POST", `/api/servers/${server}/backups`, { body, headers: waiting(api) })
  const [newest] = yield* backupsOf(api, server)
  return String(newest.id)
})

/** Restores a backup and returns the operation at its end. */
const restored = Effect.fnUntraced(function* (api: Api, server: string, body: object) {
  const path = `/api/servers/${server}/restore`
  return (yield* expectStatus(api, 202, "POST", path, { body, headers: waiting(api) })).json
})

layer(Layer.provideMerge(Far.layer, service()), options)("restoring backups", (it) => {
  describe("spec 12.5: restoring", () => {
    it.effect.each(places)("%s: the files are those of the backup, and those before it are kept", (place) =>
      Effect.gen(function* () {
        const { api, files, id: server } = yield* scene(place)
        yield* files.put("/world/level.dat", "old")
        const backup_id = yield* backedUp(api, server, { name: "old" })
        yield* files.put("/world/level.dat", "new")
        yield* files.put("/later.txt", "later")
        const operation = yield* restored(api, server, { backup_id, start: true })
        assert.deepInclude(operation, { kind: "backup.restore", state: "done", server_id: server })
        assert.strictEqual((yield* files.get("/world/level.dat")).text, "old")
        assert.strictEqual((yield* files.get("/later.txt")).status, 404)
        const [safety] = yield* backupsOf(api, server)
        assert.deepInclude(safety, { name: "before old", state: "done", operation_id: operation.id })
        const days = (Date.parse(safety.expires_at) - Date.now()) / 86_400_000
        assert.isTrue(days > 6.9 && days <= 7, safety.expires_at)
        yield* becomes(api, server, "running")
        assertError(
          yield* api.request("POST", `/api/servers/${server}/restore`, { body: { backup_id } }),
          409,
          `server is running: ${server}`
        )
        yield* expectStatus(api, 200, "POST", `/api/servers/${server}/power`, { body: { action: "stop" } })
        yield* becomes(api, server, "offline")
        yield* restored(api, server, { backup_id: safety.id, safety: false })
        assert.strictEqual((yield* files.get("/later.txt")).text, "later")
        assert.lengthOf(yield* backupsOf(api, server), 2)
        yield* restored(api, server, { backup_id: safety.id })
        assert.strictEqual((yield* backupsOf(api, server))[0].name, "before old")
        const entries = (yield* expectStatus(
          api,
          200,
          "GET",
          "/api/audit?limit=20&result=ok&action=backup.restore"
        )).json
        assert.include(JSON.stringify(entries), `backup ${backup_id}`)
      })
    )

    it.effect.each([
      ["embedded", "embedded"],
      ["embedded", "remote"],
      ["remote", "embedded"],
      ["remote", "remote"]
    ] as const)(
      "a dry run says what a backup on the %s node would change on a server on the %s one, which may be up",
      ([from, to]) =>
        Effect.gen(function* () {
          const { api, files, id } = yield* scene(from)
          const other = from === to ? { api, files, id } : yield* scene(to)
          yield* files.put("/world/level.dat", "backed up")
          const backup_id = yield* backedUp(api, id, { name: "old" })
          yield* other.files.put("/world/level.dat", "present")
          yield* other.files.put("/later.txt", "later")
          yield* expectStatus(api, 200, "POST", `/api/servers/${other.id}/power`, {
            body: { action: "start" }
          })
          yield* becomes(api, other.id, "running")
          const path = `/api/servers/${other.id}/restore?dry_run=true`
          const planned = (body: object) =>
            Effect.map(
              expectStatus(api, 200, "POST", path, { body: { backup_id, ...body } }),
              ({ json }) => json
            )
          const before = yield* backupsOf(api, other.id)
          const whole = yield* planned({})
          assert.deepInclude(whole, { backup_id, must_stop: true, safety: "before old" })
          assert.deepStrictEqual(
            [whole.changed.first, whole.removed.first],
            [["/world/level.dat"], ["/later.txt"]]
          )
          const merged = yield* planned({ mode: "merge", paths: ["/world"], safety: false })
          assert.deepStrictEqual([merged.changed.count, merged.removed.count], [1, 0])
          assert.notProperty(merged, "safety")
          assertError(
            yield* api.request("POST", path, { body: { backup_id, paths: ["/none"] } }),
            422,
            "the backup has no /none"
          )
          assert.deepStrictEqual(yield* backupsOf(api, other.id), before)
          assert.strictEqual((yield* other.files.get("/world/level.dat")).text, "present")
        })
    )

    it.effect.each(places)("%s: definition: backup gives the server back the definition it had", (place) =>
      Effect.gen(function* () {
        const { api, files, id: server } = yield* scene(place)
        const change = Effect.fnUntraced(function* (overrides: object) {
          yield* expectStatus(api, 200, "PATCH", `/api/servers/${server}`, { body: { overrides } })
          yield* becomes(api, server, "offline")
        })
        const shown = Effect.map(
          expectStatus(api, 200, "GET", `/api/servers/${server}?include=limits,definition`),
          ({ json: { definition, limits } }) => ({ definition, memory: limits.memory_limit })
        )
        yield* change({ limits: { memory_limit: 77 } })
        const before = yield* shown
        yield* files.put("/world/level.dat", "old")
        const backup_id = yield* backedUp(api, server, {})
        yield* change({ limits: { memory_limit: 88 }, version: "9.9" })
        yield* files.put("/world/level.dat", "new")
        const path = `/api/servers/${server}/restore`
        const body = { backup_id, definition: "backup" }
        const keeper = yield* keyed("Operator", { allow: ["restore"] })
        assertError(yield* keeper.request("POST", path, { body }), 403)
        const other = yield* scene(place)
        assertError(
          yield* api.request("POST", `/api/servers/${other.id}/restore`, { body }),
          409,
          `the backup is of another server: ${server}`
        )
        const plan = yield* expectStatus(api, 200, "POST", `${path}?dry_run=true`, { body })
        assert.includeMembers(
          plan.json.definition.map(({ path }: { readonly path: string }) => path),
          ["limits.memory_limit", "version"]
        )
        const operation = yield* restored(api, server, body)
        assert.strictEqual(operation.state, "done", operation.reason)
        assert.deepStrictEqual(yield* shown, before)
        assert.strictEqual((yield* files.get("/world/level.dat")).text, "old")
        const [{ id: safety, name }] = yield* backupsOf(api, server)
        assert.match(name, /^before the one of 20\d\d-\d\d-\d\d \d\d:\d\d UTC$/)
        assert.strictEqual(
          (yield* restored(api, server, { backup_id: safety, definition: "backup" })).state,
          "done"
        )
        assert.strictEqual((yield* shown).memory, 88)
        assert.strictEqual((yield* files.get("/world/level.dat")).text, "new")
      })
    )

    it.effect("once files are put in place, a cancelled restore is done, and the server is not started", () =>
      Effect.gen(function* () {
        const { api, id: server } = yield* scene("embedded")
        const folder = join(api.dataDir, "node/servers", server, "files")
        const paths = Array.from({ length: 1_000 }, (_, at) => join(folder, `f${at}`))
        const fill = (text: string) => {
          for (const path of paths) writeFileSync(path, text)
        }
        const texts = () => new Set(paths.map((path) => readFileSync(path, "utf8")))
        fill("old")
        const backup_id = yield* backedUp(api, server)
        const body = { backup_id, mode: "merge", safety: false, start: true }
        // A restore that ends before its cancellation is begun again.
        const attempt = Effect.gen(function* () {
          fill("new")
          const { id } = (yield* expectStatus(api, 202, "POST", `/api/servers/${server}/restore`, { body }))
            .json
          yield* until("a file is in place", () => texts().has("old"))
          const path = `/api/operations/${id}`
          const { status } = yield* api.request("DELETE", path)
          const ended = eventually(expectStatus(api, 200, "GET", path), ({ json }) => hasEnded(json.state))
          if (status === 202) return (yield* ended).json
          yield* becomes(api, server, "running")
          yield* expectStatus(api, 200, "POST", `/api/servers/${server}/power`, { body: { action: "stop" } })
          yield* becomes(api, server, "offline")
        })
        const end = yield* eventually(attempt, (operation) => operation !== undefined)
        const reason = "the server was not started: the operation was cancelled; start it"
        assert.deepInclude(end, { state: "done", reason })
        assert.deepStrictEqual([...texts()], ["old"])
        yield* expectStatus(api, 200, "POST", `/api/servers/${server}/power`, { body: { action: "start" } })
        yield* becomes(api, server, "running")
      })
    )

    it.effect(
      "a restore that fails before the start leaves a server that starts, and the operation says so",
      () =>
        Effect.gen(function* () {
          const { api, files, id: server } = yield* scene("embedded")
          yield* files.put("/thing", "a file")
          const backup_id = yield* backedUp(api, server)
          yield* files.post("delete", { paths: ["/thing"] })
          yield* files.put("/thing/inner", "in a folder")
          const merge = { mode: "merge", paths: ["/thing"] }
          const operation = yield* restored(api, server, { backup_id, ...merge, start: true })
          assert.strictEqual(operation.state, "failed")
          assert.match(
            operation.reason,
            /\/thing.*; the server was not started: start it, or restore it again$/
          )
          yield* expectStatus(api, 200, "POST", `/api/servers/${server}/power`, { body: { action: "start" } })
          yield* becomes(api, server, "running")
        })
    )

    it.effect.each(places)("%s: a path that the backup lacks is refused before anything is made", (place) =>
      Effect.gen(function* () {
        const { api, files, id: server } = yield* scene(place)
        yield* files.put("/world/level.dat", "old")
        const backup_id = yield* backedUp(api, server)
        const before = yield* backupsOf(api, server)
        const refused = yield* api.request("POST", `/api/servers/${server}/restore`, {
          body: { backup_id, paths: ["/world", "/none"] }
        })
        assertError(refused, 422, "the backup has no /none")
        assert.deepStrictEqual(yield* backupsOf(api, server), before)
      })
    )

    it.effect.each([
      ["embedded", "remote"],
      ["remote", "embedded"]
    ] as const)("a backup on the %s node is restored to a server on the %s one", ([from, to]) =>
      Effect.gen(function* () {
        const { api, files, id } = yield* scene(from)
        const other = yield* scene(to)
        const noise = Array.from({ length: 100_000 }, () => Math.random().toString(36)).join("")
        yield* files.put("/world/level.dat", noise)
        yield* other.files.put("/own.txt", "own")
        const backup_id = yield* backedUp(api, id)
        assert.strictEqual((yield* restored(api, other.id, { backup_id })).state, "done")
        assert.strictEqual((yield* other.files.get("/world/level.dat")).text, noise)
        assert.strictEqual((yield* other.files.get("/own.txt")).status, 404)
        yield* other.files.put("/own.txt", "own")
        yield* other.files.put("/world/level.dat", "changed")
        yield* other.files.put("/world/later.txt", "later")
        const merge = { backup_id, mode: "merge", paths: ["/world"], safety: false }
        assert.strictEqual((yield* restored(api, other.id, merge)).state, "done")
        assert.strictEqual((yield* other.files.get("/world/level.dat")).text, noise)
        assert.strictEqual((yield* other.files.get("/world/later.txt")).text, "later")
        const replace = { backup_id, paths: ["/world"], safety: false }
        assert.strictEqual((yield* restored(api, other.id, replace)).state, "done")
        assert.strictEqual((yield* other.files.get("/world/later.txt")).status, 404)
        assert.strictEqual((yield* other.files.get("/own.txt")).text, "own")
      })
    )

    it.effect.each([
      ["embedded", "far", "full"],
      ["remote", "near", "full"],
      ["embedded", "far", "written"],
      ["remote", "near", "written"]
    ] as const)(
      "spec 12.7: a deleted server of the %s node comes back on the %s one (%s)",
      ([from, to, kind]) =>
        Effect.gen(function* () {
          const { api, files, id } = yield* scene(from)
          const body = { name: "lobby", labels: { team: "a" }, overrides: { limits: { memory_limit: 77 } } }
          yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body })
          yield* becomes(api, id, "offline")
          yield* files.put("/world/level.dat", "level")
          yield* files.put("/plugins/own.yml", "own")
          const backup_id = yield* backedUp(api, id, { kind, labels: { planted: "at creation" } })
          const planted = { labels: { planted: "later" } }
          yield* expectStatus(api, 200, "PATCH", `/api/backups/${backup_id}`, { body: planted })
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
          const nodes = (yield* expectStatus(api, 200, "GET", "/api/nodes")).json
          const node = nodes.find(
            ({ name }: { readonly name: string }) => (name === "far") === (to === "far")
          )
          const { json: made } = yield* expectStatus(api, 202, "POST", "/api/servers", {
            body: { blueprint_id: "kept", from_backup: backup_id, node_id: node.id, start: true }
          })
          assert.notStrictEqual(made.id, id)
          yield* becomes(api, made.id, "running")
          const path = `/api/servers/${made.id}?include=name,labels,limits`
          const { labels, limits, name } = (yield* expectStatus(api, 200, "GET", path)).json
          assert.deepStrictEqual([name, labels, limits.memory_limit], ["lobby", { team: "a" }, 77])
          const again = filesOf(api, made.id)
          assert.strictEqual((yield* again.get("/world/level.dat")).text, "level")
          assert.strictEqual((yield* again.get("/plugins/own.yml")).text, "own")
        })
    )

    it.effect(
      "spec 12.7: from_backup needs the right restore and a backup that is done, and creates nothing else",
      () =>
        Effect.gen(function* () {
          const { api, id: server } = yield* scene("embedded")
          const backup_id = yield* backedUp(api, server)
          const body = { blueprint_id: "kept", from_backup: backup_id }
          const keeper = yield* keyed("Operator", { allow: ["create", "backups"] })
          assertError(yield* keeper.request("POST", "/api/servers", { body }), 403)
          const foreign = yield* keyed("Operator", { allow: ["create", "restore"], labels: { team: "none" } })
          assertError(
            yield* foreign.request("POST", "/api/servers", { body: { ...body, labels: { team: "none" } } }),
            404,
            `backup not found: ${backup_id}`
          )
          const [before] = yield* servers(api)
          assertError(
            yield* api.request("POST", "/api/servers", { body: { ...body, from_backup: "none" } }),
            404,
            "backup not found: none"
          )
          assert.deepStrictEqual([(yield* servers(api))[0]], [before])
        })
    )

    it.effect("the right restore is needed, and a backup that the key sees", () =>
      Effect.gen(function* () {
        const { api, id: server } = yield* scene("embedded")
        const foreign = yield* backedUp(api, (yield* scene("embedded")).id)
        const path = `/api/servers/${server}/restore`
        const keeper = yield* keyed("Operator", { allow: ["backups"] })
        for (const query of ["", "?dry_run=true"])
          assertError(yield* keeper.request("POST", path + query, { body: { backup_id: foreign } }), 403)
        const own = yield* keyed("Operator", { allow: ["restore"], servers: [server] })
        assertError(
          yield* own.request("POST", path, { body: { backup_id: foreign } }),
          404,
          `backup not found: ${foreign}`
        )
        assertError(
          yield* api.request("POST", path, { body: { backup_id: "x".repeat(100_000) } }),
          404,
          `backup not found: ${"x".repeat(200)}`
        )
        for (const body of [{}, { backup_id: foreign, paths: [] }, { backup_id: foreign, paths: ["../x"] }])
          assertError(yield* api.request("POST", path, { body }), 422)
      })
    )
  })
})
