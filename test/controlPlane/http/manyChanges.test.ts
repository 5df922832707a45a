import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { eventually } from "../../support/eventually.ts"
import { expectStatus } from "../../support/servers.ts"
import { Far, places, scene } from "./support/files.ts"
import { assertError, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

const LARGE = 1_050

layer(Layer.provideMerge(Far.layer, service()), options)("many changes of files", (it) => {
  /** Sends a change and waits for its end. */
  const sender = Effect.fnUntraced(function* (place: (typeof places)[number]) {
    const { api, files, id } = yield* scene(place)
    const headers = { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
    const send = Effect.fnUntraced(function* (action: string, body: object) {
      const answer = yield* api.request("POST", `${files.base}/${action}`, { body, headers })
      if (answer.json?.state !== "running") return answer
      const path = `/api/operations/${answer.json.id}`
      const { json } = yield* eventually(
        expectStatus(api, 200, "GET", path),
        (now) => now.json.state !== "running"
      )
      return { ...answer, json }
    })
    return { api, files, id, send }
  })

  describe("spec 10.3: archives that the node writes", () => {
    it.effect.each(places)(
      "%s: the name decides the format, and an archive that exists is replaced if the caller says so",
      (place) =>
        Effect.gen(function* () {
          const { api, files, id, send } = yield* sender(place)
          yield* files.put("/world/a", "first")
          const body = { paths: ["/world"], to: "/new/world.zip" }
          const packed = yield* send("pack", body)
          assert.strictEqual(packed.status, 202, packed.text)
          const { kind, progress, server_id, state } = packed.json
          assert.deepStrictEqual([kind, server_id, state], ["files.pack", id, "done"])
          const { text } = yield* files.get("/new/world.zip")
          assert.strictEqual(text.slice(0, 2), "PK")
          assert.deepStrictEqual(progress, { done: 5, total: 5, unit: "bytes" })
          const [entry] = (yield* expectStatus(api, 200, "GET", "/api/audit?limit=1&action=file.pack")).json
          assert.deepInclude(entry, { action: "file.pack", paths: ["/new/world.zip", "/world"] })
          const again = yield* send("pack", body)
          assertError(again, 409, "/new/world.zip: it exists")
          assert.include(again.json.hint, "overwrite=replace")
          yield* files.put("/world/a", "longer than first")
          const replaced = yield* send("pack", { ...body, overwrite: "replace" })
          assert.deepInclude(replaced.json, {
            state: "done",
            progress: { done: 17, total: 17, unit: "bytes" }
          })
          for (const to of ["/world.rar", "/world", "world.zip"])
            assertError(yield* send("pack", { paths: ["/world"], to }), 422)
          assertError(yield* send("pack", { paths: [], to: "/x.zip" }), 422)
          const missing = yield* send("pack", { paths: ["/world", "/none"], to: "/x.zip" })
          assertError(missing, 404, "no such path: /none")
          const folders = yield* keyed("Operator", { allow: ["files"], paths: ["/world"] })
          const reader = yield* keyed("Operator", { allow: ["browse"] })
          for (const [key, paths, to] of [
            [folders, ["/world"], "/x.zip"],
            [folders, ["/new"], "/world/x.zip"],
            [reader, ["/world"], "/x.zip"]
          ] as const)
            assertError(yield* key.request("POST", `${files.base}/pack`, { body: { paths, to } }), 403)
        })
    )
  })

  describe("spec 10.3: more than 1,000 entries", () => {
    it.effect.each(places)(
      "%s: more changes, and trees that are copied or deleted, are an operation; other requests are 200",
      (place) =>
        Effect.gen(function* () {
          const { api, files, id, send } = yield* sender(place)
          yield* files.put("/one", "1")
          const names = Array.from({ length: LARGE }, (_, n) => `/many/f${n}`)
          const copied = yield* send("copy", { copies: names.map((to) => ({ from: "/one", to })) })
          assert.strictEqual(copied.status, 202, copied.text)
          const { created_at, finished_at, id: operation, ...rest } = copied.json
          const progress = { done: LARGE, total: LARGE, unit: "files" }
          assert.deepStrictEqual(rest, { kind: "files.change", server_id: id, state: "done", progress })
          assert.isTrue(created_at <= finished_at)
          assert.strictEqual(copied.headers.get("location"), `/api/operations/${operation}`)
          assert.strictEqual(copied.headers.get("preference-applied"), "wait")
          const [entry] = (yield* expectStatus(api, 200, "GET", "/api/audit?limit=1&result=ok")).json
          assert.deepInclude(entry, { action: "file.copy", result: { status: 202 } })
          assert.include(entry.paths, "/many/f0")
          assert.strictEqual((yield* files.get("/many/f1049")).text, "1")
          const set = yield* send("mode", { paths: [...names, "/none"], mode: "0600" })
          assert.strictEqual(set.json.state, "failed")
          assert.strictEqual(
            set.json.reason,
            `1 of ${LARGE + 1} changes were refused; the first: no such path: /none`
          )
          const [{ mode }] = (yield* files.list("/many", "&limit=1")).json
          assert.strictEqual(mode, "0600")
          const copy = yield* send("copy", { copies: [{ from: "/many", to: "/copy" }] })
          const counted = { done: LARGE + 1, total: LARGE + 1, unit: "files" }
          assert.deepInclude(copy.json, { state: "done", progress: counted })
          const moved = yield* send("move", { moves: [{ from: "/copy/f0", to: "/f0" }] })
          assert.deepStrictEqual([moved.status, moved.json], [200, { "/f0": { status: 200 } }])
          const deleted = yield* send("delete", { paths: ["/f0", "/copy", "/many"] })
          assert.strictEqual(deleted.status, 202)
          assert.strictEqual(deleted.json.state, "done", deleted.text)
          for (const path of ["/f0", "/copy/f1", "/many/f1"]) assertError(yield* files.get(path), 404)
          const small = yield* send("delete", { paths: ["/one", "/none"] })
          assert.strictEqual(small.status, 200)
          assert.deepInclude(small.json["/none"], { code: "404" })
        }),
      180_000
    )
  })
})
