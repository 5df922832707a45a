import { createHash } from "node:crypto"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { expectStatus } from "../../support/servers.ts"
import { Far, places, scene } from "./support/files.ts"
import { assertError, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"
import { base64, locationOf, metadataOf, uploadsOf } from "./support/tus.ts"

layer(Layer.provideMerge(Far.layer, service({ MUSTER_CORS_ORIGINS: "https://page.example" })), options)(
  "resumable uploads",
  (it) => {
    describe("spec 10.8: tus 1.0", () => {
      it.effect.each(places)("%s: an upload begins, continues at its offset, and ends as a file", (place) =>
        Effect.gen(function* () {
          const { api, files, id } = yield* scene(place)
          const { create, head, patch } = uploadsOf(api, id)
          const made = yield* create({ path: "/größe/a.bin", mode: "0755", filename: "a.bin" }, 10)
          assert.strictEqual(made.status, 201, made.text)
          const upload = locationOf(made)
          assert.match(upload, /^\/api\/servers\/[^/]+\/files\/uploads\/[\w-]{32}$/)
          assert.strictEqual(made.headers.get("tus-resumable"), "1.0.0")
          assert.isAbove(Date.parse(made.headers.get("upload-expires") ?? ""), Date.now() + 23 * 3600 * 1000)
          const first = yield* patch(upload, 0, "01234")
          assert.strictEqual(first.status, 204, first.text)
          assert.strictEqual(first.headers.get("upload-offset"), "5")
          const { headers, status, text } = yield* head(upload)
          assert.deepStrictEqual([status, text], [200, ""])
          assert.deepStrictEqual(
            ["upload-offset", "upload-length", "cache-control", "etag"].map((name) => headers.get(name)),
            ["5", "10", "no-store", null]
          )
          assert.strictEqual(
            headers.get("upload-metadata"),
            metadataOf({ path: "/größe/a.bin", mode: "0755", filename: "a.bin" })
          )
          assertError(yield* files.get("/größe/a.bin"), 404)
          assertError(yield* patch(upload, 4, "x"), 409, /the upload is at byte 5, not 4/)
          const last = yield* patch(upload, 5, "56789")
          assert.strictEqual(last.status, 204)
          const whole = yield* files.get("/größe/a.bin")
          assert.strictEqual(whole.text, "0123456789")
          assert.strictEqual(last.headers.get("etag"), whole.headers.get("etag"))
          const after = yield* expectStatus(api, 200, "GET", upload)
          assert.deepInclude(after.json, { path: "/größe/a.bin", size: 10, offset: 10 })
          assert.strictEqual(after.headers.get("etag"), whole.headers.get("etag"))
        })
      )

      it.effect.each(places)("%s: the first bytes may come with the beginning; 0 bytes are a file", (place) =>
        Effect.gen(function* () {
          const { api, files, id } = yield* scene(place)
          const { create, patch } = uploadsOf(api, id)
          const part = yield* create({ path: "/part" }, 6, {}, "abc")
          assert.deepStrictEqual([part.status, part.headers.get("upload-offset")], [201, "3"], part.text)
          assert.strictEqual((yield* patch(locationOf(part), 3, "def")).status, 204)
          assert.strictEqual((yield* files.get("/part")).text, "abcdef")
          const whole = yield* create({ path: "/whole" }, 3, {}, "abc")
          assert.isNotNull(whole.headers.get("etag"))
          assert.strictEqual((yield* files.get("/whole")).text, "abc")
          assert.strictEqual((yield* create({ path: "/empty" }, 0)).status, 201)
          assert.strictEqual((yield* files.get("/empty")).text, "")
          assertError(yield* create({ path: "/long" }, 2, {}, "abc"), 413)
        })
      )

      it.effect.each(places)(
        "%s: bytes with another checksum are 460, an unknown algorithm is 400",
        (place) =>
          Effect.gen(function* () {
            const { api, files, id } = yield* scene(place)
            const { create, head, patch } = uploadsOf(api, id)
            const upload = locationOf(yield* create({ path: "/sum" }, 6))
            const sum = (algorithm: string, text: string) => ({
              "upload-checksum": `${algorithm} ${createHash(algorithm).update(text).digest("base64")}`
            })
            assertError(yield* patch(upload, 0, "xyz", sum("sha1", "abc")), 460)
            assertError(yield* patch(upload, 0, "abc", sum("md5", "abc")), 400)
            assertError(yield* patch(upload, 0, "abc", { "upload-checksum": "sha1 x" }), 400)
            assert.strictEqual((yield* head(upload)).headers.get("upload-offset"), "0")
            assert.strictEqual((yield* patch(upload, 0, "abc", sum("sha1", "abc"))).status, 204)
            assert.strictEqual((yield* patch(upload, 3, "def", sum("sha256", "def"))).status, 204)
            assert.strictEqual((yield* files.get("/sum")).text, "abcdef")
          })
      )

      it.effect("an upload that is ended is 404, as one that never was", () =>
        Effect.gen(function* () {
          const { api, id } = yield* scene("embedded")
          const { base, create, end, head, patch } = uploadsOf(api, id)
          const upload = locationOf(yield* create({ path: "/ended" }, 6))
          assert.strictEqual((yield* end(upload)).status, 204)
          for (const path of [upload, `${base}/${"x".repeat(32)}`, `${base}/..%2f..%2fserver`, `${base}/x`]) {
            assert.strictEqual((yield* head(path)).status, 404)
            assertError(yield* patch(path, 0, "x"), 404)
            assertError(yield* end(path), 404)
          }
        })
      )

      it.effect("another version of tus is 412; every response has the version, also errors", () =>
        Effect.gen(function* () {
          const { api, id } = yield* scene("embedded")
          const { base, create, head, patch } = uploadsOf(api, id)
          const upload = locationOf(yield* create({ path: "/v" }, 6))
          for (const headers of [{}, { "tus-resumable": "0.2.2" }]) {
            const refused = yield* api.request("POST", base, { raw: "", headers })
            assertError(refused, 412)
            assert.strictEqual(refused.headers.get("tus-version"), "1.0.0")
            assert.strictEqual((yield* head(upload, headers)).status, 412)
          }
          assertError(yield* patch(upload, 0, "x", { "tus-resumable": "2.0.0" }), 412)
          const stranger = yield* api.request("POST", base, { raw: "", key: "none" })
          assert.deepStrictEqual([stranger.status, stranger.headers.get("tus-resumable")], [401, "1.0.0"])
          const discovered = yield* api.request("OPTIONS", base)
          assert.strictEqual(discovered.status, 204)
          assert.strictEqual(
            discovered.headers.get("tus-extension"),
            "creation,creation-with-upload,expiration,checksum,termination"
          )
          assert.strictEqual(discovered.headers.get("tus-checksum-algorithm"), "sha1,sha256")
        })
      )

      it.effect.each([
        [{ "upload-length": "-1" }, "upload-length"],
        [{ "upload-length": "1e3" }, "upload-length"],
        [{ "upload-length": "" }, "upload-length"],
        [{ "upload-metadata": "" }, "upload-metadata"],
        [{ "upload-metadata": "path" }, "upload-metadata"],
        [{ "upload-metadata": `path ${base64("../x")}` }, "upload-metadata"],
        [{ "upload-metadata": `path ${base64("/a/../x")}` }, "upload-metadata"],
        [{ "upload-metadata": `path ${base64("/x")},path ${base64("/y")}` }, "upload-metadata"],
        [{ "upload-metadata": "path !!!" }, "upload-metadata"],
        [{ "upload-metadata": `path ${base64("/x")},mode ${base64("1777")}` }, "upload-metadata"],
        [{ "upload-metadata": `path ${base64("/x")},overwrite ${base64("maybe")}` }, "upload-metadata"],
        [{ "upload-metadata": `x ${"A".repeat(9000)}` }, "upload-metadata"]
      ] as const)("case %#: a header that cannot be read is 422", ([headers, name]) =>
        Effect.gen(function* () {
          const { api, id } = yield* scene("embedded")
          assertError(
            yield* uploadsOf(api, id).create({ path: "/x" }, 1, headers),
            422,
            new RegExp(`^header ${name}: `)
          )
        })
      )

      it.effect("an upload replaces a file only as its conditions allow", () =>
        Effect.gen(function* () {
          const { api, files, id } = yield* scene("embedded")
          const { create, patch } = uploadsOf(api, id)
          const etag = (yield* files.put("/c", "old")).headers.get("etag") ?? ""
          assertError(yield* create({ path: "/c", overwrite: "fail" }, 1), 412)
          assertError(yield* create({ path: "/c", "if-match": '"other"' }, 1), 412)
          const upload = locationOf(yield* create({ path: "/c", "if-match": etag }, 3))
          yield* files.put("/c", "changed")
          assertError(yield* patch(upload, 0, "new"), 412)
          assert.strictEqual((yield* files.get("/c")).text, "changed")
          assertError(yield* patch(upload, 0, "new"), 404)
        })
      )
    })

    describe("spec 10.1: rights of uploads", () => {
      it.effect("files is needed; a key reaches its folders and its own uploads only", () =>
        Effect.gen(function* () {
          const { api, id } = yield* scene("embedded")
          const reader = uploadsOf(yield* keyed("ReadOnly", { allow: ["browse"] }), id)
          assertError(yield* reader.create({ path: "/x" }, 1), 403, "the API key lacks: files")
          const writer = uploadsOf(yield* keyed("Operator", { allow: ["files"], paths: ["/plugins"] }), id)
          assertError(yield* writer.create({ path: "/x" }, 1), 403, /does not reach \/x/)
          const made = yield* writer.create({ path: "/plugins/x" }, 3)
          assert.strictEqual(made.status, 201)
          const own = uploadsOf(api, id)
          const upload = locationOf(made)
          assert.strictEqual((yield* own.head(upload)).status, 404)
          assertError(yield* own.patch(upload, 0, "abc"), 404)
          assertError(yield* own.end(upload), 404)
          assert.strictEqual((yield* reader.head(upload)).status, 403)
          assert.strictEqual((yield* writer.patch(upload, 0, "abc")).status, 204)
        })
      )

      it.effect("the audit log has one entry of an upload, at its end", () =>
        Effect.gen(function* () {
          const { api, id } = yield* scene("remote")
          const { create, end, patch } = uploadsOf(api, id)
          const upload = locationOf(yield* create({ path: "/audited" }, 6))
          yield* patch(upload, 0, "abc")
          assertError(yield* patch(upload, 0, "abc"), 409)
          yield* patch(upload, 3, "def")
          yield* end(locationOf(yield* create({ path: "/ended" }, 6)))
          const { json } = yield* expectStatus(api, 200, "GET", `/api/audit?object=${id}&action=file`)
          assert.deepStrictEqual(
            json.map(({ action, paths, result }: Record<string, unknown>) => ({ action, paths, result })),
            [{ action: "file.write", paths: ["/audited"], result: { status: 204 } }]
          )
        })
      )

      it.effect("pages of allowed origins may upload, and read the headers of tus", () =>
        Effect.gen(function* () {
          const { api, id } = yield* scene("embedded")
          const { base, create } = uploadsOf(api, id)
          const origin = "https://page.example"
          const preflight = yield* api.request("OPTIONS", base, {
            key: "none",
            headers: {
              origin,
              "access-control-request-method": "PATCH",
              "access-control-request-headers": "tus-resumable,upload-offset"
            }
          })
          const allowed = preflight.headers.get("access-control-allow-headers") ?? ""
          for (const name of [
            "tus-resumable",
            "upload-length",
            "upload-offset",
            "upload-metadata",
            "upload-checksum"
          ])
            assert.include(allowed.split(","), name)
          assert.include(preflight.headers.get("access-control-allow-methods") ?? "", "PATCH")
          const made = yield* create({ path: "/cors" }, 3, { origin })
          const exposed = (made.headers.get("access-control-expose-headers") ?? "").split(",")
          for (const name of [
            "location",
            "upload-offset",
            "upload-length",
            "upload-expires",
            "tus-resumable"
          ])
            assert.include(exposed, name)
        })
      )
    })
  }
)
