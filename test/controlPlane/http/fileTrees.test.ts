import { randomBytes } from "node:crypto"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { expectStatus } from "../../support/servers.ts"
import { Far, filesOf, places, scene } from "./support/files.ts"
import { assertError, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

layer(Layer.provideMerge(Far.layer, service()), options)("many files of a server", (it) => {
  describe("spec 10.3", () => {
    it.effect.each(places)("%s: files and folders are downloaded as an archive", (place) =>
      Effect.gen(function* () {
        const { files } = yield* scene(place)
        yield* files.put("/world/a", "first")
        yield* files.put("/b", "second")
        const { status, text } = yield* files.archive("path=/world&path=/b&format=tar")
        assert.strictEqual(status, 200)
        for (const part of ["world/a", "first", "second"]) assert.include(text, part)
        assertError(yield* files.archive("path=/none"), 404)
        assertError(yield* files.archive("format=zip"), 422)
        assertError(yield* files.archive("path=/b&format=rar"), 422)
      })
    )

    it.effect.each(places)("%s: files are found by name and by text", (place) =>
      Effect.gen(function* () {
        const { files } = yield* scene(place)
        yield* files.put("/p/a.yml", "one\nTwo three\n")
        yield* files.put("/p/b.txt", "two")
        const { headers, json } = yield* files.search("path=/p&text=two")
        assert.sameDeepMembers(
          json.map(({ line, path }: Record<string, unknown>) => [path, line]),
          [
            ["/p/a.yml", 2],
            ["/p/b.txt", 1]
          ]
        )
        assert.isNull(headers.get("x-muster-incomplete"))
        const byCase = yield* files.search("path=/p&text=two&case=true")
        assert.strictEqual(byCase.json.length, 1)
        const byName = yield* files.search("path=/p&name=*.yml")
        assert.deepStrictEqual(byName.json, [{ path: "/p/a.yml" }])
        const limited = yield* files.search("path=/p&name=*&limit=1")
        assert.strictEqual(limited.json.length, 1)
        assertError(yield* files.search("path=/p"), 422)
      })
    )

    it.effect.each(places)("%s: the files beside the base of the server are listed", (place) =>
      Effect.gen(function* () {
        const { api, files } = yield* scene(place)
        yield* files.put("/new", "12345")
        yield* files.put("/server.sh", "changed")
        const { json } = yield* expectStatus(api, 200, "GET", `${files.base}/diff`)
        assert.deepInclude(json, { path: "/new", change: "added", size: 5 })
        assert.deepInclude(json, { path: "/server.sh", change: "changed", size: 7 })
      })
    )

    it.effect.each(places)("%s: one download too many of a server is 429 with Retry-After", (place) =>
      Effect.gen(function* () {
        const { api, files, id } = yield* scene(place)
        yield* files.put("/noise", randomBytes(2_000_000).toString("hex"))
        const paths = Array.from({ length: 50 }, () => "path=/noise").join("&")
        const begin = Effect.acquireRelease(
          Effect.promise(() =>
            fetch(`${api.url}/api/servers/${id}/files/archive?${paths}&format=tar`, {
              headers: { authorization: `Bearer ${api.key}` }
            })
          ),
          ({ body }) => Effect.promise(() => body?.cancel() ?? Promise.resolve())
        )
        for (const _ of [1, 2, 3, 4]) assert.strictEqual((yield* begin).status, 200)
        const refused = yield* files.archive("path=/noise&format=tar")
        assertError(refused, 429, "the server has 4 archives that are downloaded or packed")
        assert.match(refused.headers.get("retry-after") ?? "", /^\d+$/)
      }).pipe(Effect.scoped)
    )

    it.effect("an archive is an attachment of no type", () =>
      Effect.gen(function* () {
        const { files } = yield* scene("embedded")
        yield* files.put("/index.html", "<script>")
        const { headers, status } = yield* files.archive("path=/index.html&format=zip")
        assert.strictEqual(status, 200)
        assert.strictEqual(headers.get("content-type"), "application/octet-stream")
        assert.match(headers.get("content-disposition") ?? "", /^attachment; filename="index.html.zip"/)
      })
    )
  })

  describe("spec 10.1", () => {
    it.effect("a key with folders sees no other differences, and a search for a text is a read", () =>
      Effect.gen(function* () {
        const { api, files, id } = yield* scene("embedded")
        yield* files.put("/secret", "text")
        const limited = yield* keyed("Operator", { allow: ["files"], paths: ["/plugins"] })
        const own = filesOf(limited, id)
        yield* own.put("/plugins/a", "text")
        const { json } = yield* expectStatus(limited, 200, "GET", `${own.base}/diff`)
        assert.sameMembers(
          json.map(({ path }: { readonly path: string }) => path),
          ["/plugins", "/plugins/a"]
        )
        yield* own.search("path=/plugins&name=a")
        yield* own.search("path=/plugins&text=text")
        const { json: entries } = yield* expectStatus(
          api,
          200,
          "GET",
          `/api/audit?object=${id}&action=file.read`
        )
        assert.deepStrictEqual(
          entries.map(({ paths }: { readonly paths: unknown }) => paths),
          [["/plugins"]]
        )
      })
    )
  })
})
