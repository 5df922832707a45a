import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import type { Muster } from "../../support/Muster.ts"
import { becomes, expectStatus, powered } from "../../support/servers.ts"
import { Far, filesOf, places, scene } from "./support/files.ts"
import { options, service } from "./support/http.ts"

type Api = Pick<Muster["Service"], "request" | "key" | "url">

/** Sends a request whose operation must be done within a minute. */
const done = Effect.fnUntraced(function* (api: Api, path: string, body: object = {}) {
  const headers = { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
  const { json } = yield* expectStatus(api, 202, "POST", path, { body, headers })
  assert.strictEqual(json.state, "done", json.reason)
})

const newestOf = (api: Api, server: string) =>
  Effect.map(expectStatus(api, 200, "GET", `/api/servers/${server}/backups`), ({ json }) => json[0])

const textOf = (files: ReturnType<typeof filesOf>, path: string) =>
  Effect.map(files.get(path), ({ status, text }) => (status === 404 ? "absent" : text))

layer(Layer.provideMerge(Far.layer, service()), options)("backups without a kind", (it) => {
  describe.skipIf(process.getuid?.() !== 0)("spec 12.12: on a node with overlays, they are written", () => {
    it.effect.each(places)(
      "%s: the same server, one folder, another node, a new server, an undeleted one and a drill have its files",
      (place) =>
        Effect.gen(function* () {
          const { api, files, id } = yield* scene(place)
          yield* files.put("/world/level.dat", "old")
          yield* files.put("/motd.txt", "old")
          const script = yield* textOf(files, "/server.sh")
          yield* done(api, `/api/servers/${id}/backups`)
          const backup = yield* newestOf(api, id)
          assert.strictEqual(backup.kind, "written")
          const restore = (server: string, more: object = {}) =>
            done(api, `/api/servers/${server}/restore`, { backup_id: backup.id, ...more })
          const change = Effect.andThen(files.put("/world/level.dat", "new"), files.put("/motd.txt", "new"))
          yield* change
          yield* restore(id, { paths: ["/world"] })
          assert.strictEqual(yield* textOf(files, "/world/level.dat"), "old")
          assert.strictEqual(yield* textOf(files, "/motd.txt"), "new")
          const safety = yield* newestOf(api, id)
          assert.strictEqual(safety.kind, "written")
          yield* restore(id, { safety: false })
          assert.strictEqual(yield* textOf(files, "/motd.txt"), "old")
          const other = yield* scene(place === "embedded" ? "remote" : "embedded")
          yield* other.files.put("/later.txt", "later")
          yield* restore(other.id, { safety: false })
          assert.strictEqual(yield* textOf(other.files, "/world/level.dat"), "old")
          assert.strictEqual(yield* textOf(other.files, "/later.txt"), "absent")
          assert.strictEqual(yield* textOf(other.files, "/server.sh"), script)
          const { json: made } = yield* expectStatus(api, 202, "POST", "/api/servers", {
            body: { blueprint_id: "kept", from_backup: backup.id, start: true }
          })
          yield* becomes(api, made.id, "running")
          assert.strictEqual(yield* textOf(filesOf(api, made.id), "/world/level.dat"), "old")
          yield* powered(api, id, "start")
          yield* becomes(api, id, "running")
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${id}`)
          yield* expectStatus(api, 202, "POST", `/api/servers/${id}/undelete`)
          yield* change
          yield* restore(id, { safety: false })
          assert.strictEqual(yield* textOf(files, "/world/level.dat"), "old")
          yield* done(api, `/api/backups/${backup.id}/drill`)
          const { json } = yield* expectStatus(api, 200, "GET", `/api/backups/${backup.id}`)
          assert.strictEqual(json.drill.ok, true)
        })
    )
  })
})
