import { readFileSync, truncateSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { blueprintFile, consoleServer, softwareFile } from "../../support/definitions.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { expectStatus, installed } from "../../support/servers.ts"
import { filesOf } from "./support/files.ts"
import { assertError, options } from "./support/http.ts"

const definitions = {
  software: { "game.yml": softwareFile("game", { files: { "server.sh": consoleServer } }) },
  blueprints: {
    "ruled.yml": blueprintFile("ruled", "game", {
      rest: { backup: { exclude: ["logs/", "*.tmp"], keep: { last: 2 } } }
    }),
    "away.yml": blueprintFile("away", "game", { rest: { backup: { target: "none" } } })
  }
}

layer(Muster.layer(definitions), options)("rules of backups", (it) => {
  describe("spec 12.8: the field backup of blueprints", () => {
    it.effect("excluded paths are not packed, and older backups go once a newer one is done", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "ruled")
        const files = filesOf(api, server)
        for (const path of ["/logs/a.log", "/world/b.tmp", "/world/level.dat"])
          assert.strictEqual((yield* files.put(path, "x")).status, 201)
        const headers = { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
        const backUp = (body: object = {}) =>
          Effect.gen(function* () {
            const path = `/api/servers/${server}/backups`
            const { json } = yield* expectStatus(api, 202, "POST", path, { body, headers })
            assert.strictEqual(json.state, "done", JSON.stringify(json))
            const [newest] = (yield* expectStatus(api, 200, "GET", path)).json
            return newest
          })
        const pinned = yield* backUp({ pinned: true })
        // server.sh and level.dat.
        assert.strictEqual(pinned.files, 2)
        const expiring = yield* backUp({ expires_in: 3600 })
        const [, second, third] = [yield* backUp(), yield* backUp(), yield* backUp()]
        const left = yield* eventually(
          Effect.map(expectStatus(api, 200, "GET", `/api/backups?server_id=${server}`), ({ json }) =>
            json.map(({ id }: { readonly id: string }) => id)
          ),
          (ids) => ids.length === 4
        )
        assert.deepStrictEqual(left, [third.id, second.id, expiring.id, pinned.id])
        const { json } = yield* expectStatus(api, 200, "GET", "/api/blueprints/ruled")
        assert.deepStrictEqual(json.backup, { exclude: ["logs", "*.tmp"], keep: { last: 2 } })
      })
    )

    it.effect("spec 12.5: a restore removes excluded paths, and the backup before it has them", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "ruled")
        const files = filesOf(api, server)
        yield* files.put("/logs/a.log", "excluded")
        yield* files.put("/world/level.dat", "old")
        const headers = { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
        const path = `/api/servers/${server}`
        yield* expectStatus(api, 202, "POST", `${path}/backups`, { body: {}, headers })
        const [backup] = (yield* expectStatus(api, 200, "GET", `${path}/backups`)).json
        const restored = (backup_id: string) =>
          Effect.map(
            expectStatus(api, 202, "POST", `${path}/restore`, { body: { backup_id }, headers }),
            ({ json }) => assert.strictEqual(json.state, "done", JSON.stringify(json))
          )
        yield* restored(backup.id)
        assert.strictEqual((yield* files.get("/logs/a.log")).status, 404)
        const [safety] = (yield* expectStatus(api, 200, "GET", `${path}/backups`)).json
        yield* restored(safety.id)
        assert.strictEqual((yield* files.get("/logs/a.log")).text, "excluded")
      })
    )

    it.effect("spec 12.5: keep deletes no backup that a restore made first; it goes once it expires", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "ruled")
        yield* filesOf(api, server).put("/world/level.dat", "old")
        const headers = { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
        const path = `/api/servers/${server}`
        const list = Effect.map(expectStatus(api, 200, "GET", `${path}/backups`), ({ json }) => json)
        const ids = Effect.map(list, (all) => all.map(({ id }: { readonly id: string }) => id))
        const backUp = expectStatus(api, 202, "POST", `${path}/backups`, { body: {}, headers })
        yield* backUp
        const [first] = yield* list
        yield* expectStatus(api, 202, "POST", `${path}/restore`, {
          body: { backup_id: first.id },
          headers
        })
        const [safety] = yield* list
        assert.strictEqual(Math.round((Date.parse(safety.expires_at) - Date.now()) / 86_400_000), 7)
        for (let made = 0; made < 3; made++) yield* backUp
        // Two by `keep`.
        const left = yield* eventually(ids, (now) => now.length === 3)
        assert.include(left, safety.id)
        yield* expectStatus(api, 200, "PATCH", `/api/backups/${safety.id}`, { body: { expires_in: 10 } })
        assert.notInclude(yield* eventually(ids, (now) => now.length === 2), safety.id)
      })
    )

    it.effect("spec 12.5: the backup that a restore makes first removes no other, nor the restored one", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "ruled")
        const files = filesOf(api, server)
        yield* files.put("/world/level.dat", "old")
        const headers = { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
        const path = `/api/servers/${server}`
        const states = Effect.map(expectStatus(api, 200, "GET", `${path}/backups`), ({ json }) =>
          json.map(({ state }: { readonly state: string }) => state)
        )
        const backUp = (body: object) => expectStatus(api, 202, "POST", `${path}/backups`, { body, headers })
        yield* backUp({ pinned: true })
        const [pinned] = (yield* expectStatus(api, 200, "GET", `${path}/backups`)).json
        yield* files.put("/world/level.dat", "new")
        for (let made = 0; made < 2; made++) yield* backUp({})
        yield* expectStatus(api, 200, "PATCH", `/api/backups/${pinned.id}`, { body: { pinned: false } })
        const { json } = yield* expectStatus(api, 202, "POST", `${path}/restore`, {
          body: { backup_id: pinned.id },
          headers
        })
        assert.strictEqual(json.state, "done", JSON.stringify(json))
        assert.deepStrictEqual(yield* states, ["done", "done", "done", "done"])
        assert.strictEqual((yield* files.get("/world/level.dat")).text, "old")
        yield* backUp({})
        // `keep` leaves two, besides the one that the restore has made.
        yield* eventually(states, ({ length }) => length === 3)
      })
    )

    it.effect("spec 12.1: keep neither counts nor deletes a damaged backup, until it is good again", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const server = yield* installed(api, "ruled")
        const headers = { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
        const path = `/api/servers/${server}/backups`
        const list = Effect.map(expectStatus(api, 200, "GET", path), ({ json }) => json)
        const ids = Effect.map(list, (all) => all.map(({ id }: { readonly id: string }) => id))
        const backUp = Effect.gen(function* () {
          yield* expectStatus(api, 202, "POST", path, { body: {}, headers })
          return (yield* ids)[0]
        })
        const verified = (id: string) =>
          Effect.gen(function* () {
            const { json } = yield* expectStatus(api, 202, "POST", `/api/backups/${id}/verify`, { headers })
            return [json, (yield* expectStatus(api, 200, "GET", `/api/backups/${id}`)).json]
          })
        const [first, second] = [yield* backUp, yield* backUp]
        const part = join(api.dataDir, "node/backups", second, "part-00001")
        const bytes = readFileSync(part)
        truncateSync(part, 10)
        const [failed, damaged] = yield* verified(second)
        assert.match(failed.reason, /part-00001 is damaged: it has 10 of/)
        assert.deepInclude(damaged.verified, { ok: false, reason: failed.reason })
        const third = yield* backUp
        assert.deepStrictEqual(
          (yield* list).map((one: { readonly id: string; readonly state: string }) => [one.id, one.state]),
          [third, second, first].map((id) => [id, "done"])
        )
        writeFileSync(part, bytes)
        const [done, whole] = yield* verified(second)
        assert.deepStrictEqual([done.state, whole.verified.ok], ["done", true])
        const fourth = yield* backUp
        assert.deepStrictEqual(yield* eventually(ids, ({ length }) => length === 2), [fourth, third])
      })
    )

    it.effect("a target that the blueprint names is used, and must be defined", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const path = `/api/servers/${yield* installed(api, "away")}/backups`
        assertError(
          yield* api.request("POST", path, { body: {} }),
          422,
          "backup.target of the blueprint: target not found: none"
        )
        yield* expectStatus(api, 202, "POST", path, { body: { target: "node" } })
      })
    )
  })
})
