import { createHash } from "node:crypto"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { create, expectStatus } from "../../support/servers.ts"
import { Far, filesOf, places, q, scene } from "./support/files.ts"
import { assertError, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

const digestOf = (text: string) => `sha-256=:${createHash("sha256").update(text).digest("base64")}:`

layer(Layer.provideMerge(Far.layer, service()), options)("files of servers", (it) => {
  describe("spec 10.3: contents", () => {
    it.effect.each(places)("%s: a file is written, replaced and read, also in part", (place) =>
      Effect.gen(function* () {
        const { files } = yield* scene(place)
        const made = yield* files.put("/plugins/a.yml", "0123456789")
        assert.strictEqual(made.status, 201, made.text)
        const etag = made.headers.get("etag") ?? ""
        assert.match(etag, /^"[^"]+"$/)
        const whole = yield* files.get("/plugins/a.yml")
        assert.strictEqual(whole.status, 200)
        assert.strictEqual(whole.text, "0123456789")
        assert.strictEqual(whole.headers.get("etag"), etag)
        assert.strictEqual(whole.headers.get("content-length"), "10")
        for (const [range, status, text, content] of [
          ["bytes=2-4", 206, "234", "bytes 2-4/10"],
          ["bytes=7-", 206, "789", "bytes 7-9/10"],
          ["bytes=-3", 206, "789", "bytes 7-9/10"],
          ["bytes=8-100", 206, "89", "bytes 8-9/10"],
          ["bytes=0-1,4-5", 200, "0123456789", null],
          ["bytes=4-2", 200, "0123456789", null],
          ["lines=1-2", 200, "0123456789", null]
        ] as const) {
          const part = yield* files.get("/plugins/a.yml", { range })
          assert.strictEqual(part.status, status, range)
          assert.strictEqual(part.text, text, range)
          assert.strictEqual(part.headers.get("content-range"), content, range)
        }
        for (const range of ["bytes=10-", "bytes=-0"]) {
          const outside = yield* files.get("/plugins/a.yml", { range })
          assertError(outside, 416)
          assert.strictEqual(outside.headers.get("content-range"), "bytes */10")
        }
        const replaced = yield* files.put("/plugins/a.yml", "new")
        assert.strictEqual(replaced.status, 204)
        assert.notStrictEqual(replaced.headers.get("etag"), etag)
        const range = "bytes=0-0"
        assert.strictEqual((yield* files.get("/plugins/a.yml", { range, "if-range": etag })).text, "new")
        const now = replaced.headers.get("etag") ?? ""
        assert.strictEqual((yield* files.get("/plugins/a.yml", { range, "if-range": now })).text, "n")
        const known = yield* files.get("/plugins/a.yml", { "if-none-match": now })
        assert.strictEqual(known.status, 304)
        assert.strictEqual(known.text, "")
      })
    )

    it.effect.each(places)("%s: HEAD has the size and the tag of a file, and no body", (place) =>
      Effect.gen(function* () {
        const { files } = yield* scene(place)
        const { headers: made } = yield* files.put("/a.txt", "0123456789")
        const { headers, status, text } = yield* files.head("/a.txt", { range: "bytes=0-1" })
        assert.strictEqual(status, 200)
        assert.strictEqual(text, "")
        assert.strictEqual(headers.get("content-length"), "10")
        assert.strictEqual(headers.get("etag"), made.get("etag"))
        assert.strictEqual((yield* files.head("/none")).status, 404)
      })
    )

    it.effect("a browser never shows a file: it is an attachment of no type", () =>
      Effect.gen(function* () {
        const { files } = yield* scene("embedded")
        for (const [path, name] of [
          ["/index.html", `filename="index.html"; filename*=UTF-8''index.html`],
          ["/größe (1).js", `filename="gr__e (1).js"; filename*=UTF-8''gr%C3%B6%C3%9Fe%20%281%29.js`],
          ['/a"b;.svg', `filename="a_b;.svg"; filename*=UTF-8''a%22b%3B.svg`]
        ] as const) {
          assert.strictEqual((yield* files.put(path, "<script>alert(1)</script>")).status, 201)
          for (const { headers } of [
            yield* files.get(path),
            yield* files.head(path),
            yield* files.get(path, { range: "bytes=0-1" })
          ]) {
            assert.strictEqual(headers.get("content-type"), "application/octet-stream")
            assert.strictEqual(headers.get("content-disposition"), `attachment; ${name}`)
            assert.strictEqual(headers.get("x-content-type-options"), "nosniff")
            assert.strictEqual(headers.get("accept-ranges"), "bytes")
            assert.strictEqual(headers.get("content-security-policy"), "default-src 'none'; sandbox")
          }
        }
      })
    )

    it.effect.each(places)("%s: a write whose condition does not hold is 412 and changes nothing", (place) =>
      Effect.gen(function* () {
        const { files } = yield* scene(place)
        const first = yield* files.put("/a.txt", "first", { "if-none-match": "*" })
        assert.strictEqual(first.status, 201)
        const etag = first.headers.get("etag") ?? ""
        for (const headers of [
          { "if-none-match": "*" },
          { "if-match": '"other"' },
          { "if-match": `W/${etag}` },
          { "if-match": '"x", "y"' },
          { "if-match": "nonsense" }
        ]) {
          assertError(yield* files.put("/a.txt", "second", headers), 412)
        }
        assertError(yield* files.put("/none.txt", "x", { "if-match": "*" }), 412)
        assertError(yield* files.put("/none.txt", "x", { "if-match": etag }), 412)
        assertError(yield* files.put("/a.txt", "x", { "if-none-match": etag }), 422)
        assert.strictEqual((yield* files.get("/a.txt")).text, "first")
        const second = yield* files.put("/a.txt", "second", { "if-match": `"other", ${etag}` })
        assert.strictEqual(second.status, 204)
        assert.strictEqual((yield* files.put("/a.txt", "third", { "if-match": "*" })).status, 204)
        assert.strictEqual((yield* files.get("/a.txt")).text, "third")
      })
    )

    it.effect.each(places)("%s: a digest that differs is 422 and leaves the old file", (place) =>
      Effect.gen(function* () {
        const { files } = yield* scene(place)
        const put = (text: string, digest: string) => files.put("/a.txt", text, { "content-digest": digest })
        assert.strictEqual((yield* put("old", digestOf("old"))).status, 201)
        assert.strictEqual((yield* put("old", `sha-512=:AAAA:, ${digestOf("old")}`)).status, 204)
        assertError(yield* put("new", digestOf("old")), 422)
        assertError(yield* put("new", "sha-256=:short:"), 422, /content-digest/)
        assert.strictEqual((yield* files.get("/a.txt")).text, "old")
      })
    )

    it.effect("a file has the mode that the write names; the Content-Type does not count", () =>
      Effect.gen(function* () {
        const { files } = yield* scene("embedded")
        const type = { "content-type": "text/html" }
        assert.strictEqual((yield* files.put("/run.sh", "#!", type, "&mode=0755")).status, 201)
        assert.strictEqual((yield* files.put("/empty", "", type)).status, 201)
        assertError(yield* files.put("/run.sh", "", type, "&mode=1777"), 422)
        const { json } = yield* files.list()
        const entries = json.map(({ mode, name, size, type }: Record<string, unknown>) => [
          name,
          type,
          size,
          mode
        ])
        assert.deepInclude(entries, ["run.sh", "file", 2, "0755"])
        assert.deepInclude(entries, ["empty", "file", 0, "0644"])
        assert.strictEqual((yield* files.get("/empty")).text, "")
      })
    )

    it.effect.each(places)("%s: a folder in place of a file is 409, an unknown path 404", (place) =>
      Effect.gen(function* () {
        const { files } = yield* scene(place)
        yield* files.put("/plugins/a.yml", "x")
        assertError(yield* files.get("/plugins"), 409, "/plugins is a folder")
        assertError(yield* files.put("/plugins", "x"), 409)
        assertError(yield* files.get("/plugins/none"), 404)
        assertError(yield* files.put("/plugins/a.yml/b", "x"), 409)
      })
    )
  })

  describe("spec 10.3: folders", () => {
    it.effect.each(places)("%s: a folder is listed by name, in pages", (place) =>
      Effect.gen(function* () {
        const { api, files } = yield* scene(place)
        for (const name of ["a", "b", "c", "größe"]) yield* files.put(`/all/${name}`, name)
        const first = yield* files.list("/all", "&limit=3")
        assert.deepStrictEqual(
          first.json.map(({ name }: { readonly name: string }) => name),
          ["a", "b", "c"]
        )
        const [, next = ""] = /^<(.*)>; rel="next"$/.exec(first.headers.get("link") ?? "") ?? []
        const second = yield* expectStatus(api, 200, "GET", next)
        assert.deepStrictEqual(
          second.json.map(({ name }: { readonly name: string }) => name),
          ["größe"]
        )
        assert.isNull(second.headers.get("link"))
        const sized = yield* files.list("/", "&include=size")
        const folder = sized.json.find(({ name }: { readonly name: string }) => name === "all")
        assert.deepInclude(folder, { type: "folder", size: 20480 })
        assertError(yield* api.request("GET", `${files.base}?path=/none`), 404)
        assertError(yield* api.request("GET", `${files.base}?path=/all/a`), 409)
      })
    )

    it.effect.each(places)("%s: changes have an outcome for each path", (place) =>
      Effect.gen(function* () {
        const { files } = yield* scene(place)
        yield* files.put("/a/one", "1")
        yield* files.put("/a/two", "2")
        const folder = yield* files.post("folder", { path: "/b/c" })
        assert.deepStrictEqual(folder.json, { "/b/c": { status: 200 } })
        const moves = [
          { from: "/a/one", to: "/b/one" },
          { from: "/a/none", to: "/b/none" }
        ]
        const { json: moved } = yield* files.post("move", { moves })
        assert.deepStrictEqual(moved["/b/one"], { status: 200 })
        assert.deepInclude(moved["/b/none"], { code: "404", status: "Not Found" })
        assert.hasAllKeys(moved["/b/none"], ["code", "status", "detail", "hint", "request_id"])
        const copies = [{ from: "/a/two", to: "/b/one" }]
        const { json: refused } = yield* files.post("copy", { copies })
        assert.deepInclude(refused["/b/one"], { code: "409" })
        const { json: copied } = yield* files.post("copy", { copies, overwrite: "replace" })
        assert.deepStrictEqual(copied, { "/b/one": { status: 200 } })
        assert.strictEqual((yield* files.get("/b/one")).text, "2")
        const { json: set } = yield* files.post("mode", { paths: ["/b/one"], mode: "0600" })
        assert.deepStrictEqual(set, { "/b/one": { status: 200 } })
        const { json: deleted } = yield* files.post("delete", { paths: ["/b", "/none"] })
        assert.deepStrictEqual(deleted["/b"], { status: 200 })
        assert.deepInclude(deleted["/none"], { code: "404" })
        assertError(yield* files.get("/b/one"), 404)
        assertError(yield* files.post("delete", { paths: ["/a", "/a"] }), 422, "body: /a is there twice")
        assertError(yield* files.post("delete", { paths: [] }), 422)
        const many = Array.from({ length: 12_001 }, (_, n) => `/${n}`)
        assertError(yield* files.post("delete", { paths: many }), 422)
      })
    )

    it.effect.each(["/../x", "/a/../b", "/a//b", "/a/./b", "a", "/a/", `/${"x".repeat(256)}`])(
      "the path %s is 422",
      (path) =>
        Effect.gen(function* () {
          const { files } = yield* scene("embedded")
          assertError(yield* files.get(path), 422)
          assertError(yield* files.put(path, "x"), 422)
          assertError(yield* files.post("folder", { path }), 422)
          assertError(yield* files.archive(`path=${q(path)}`), 422)
        })
    )

    it.effect("a path has at most 64 names and 4,096 bytes, and no NUL", () =>
      Effect.gen(function* () {
        const { files } = yield* scene("embedded")
        for (const path of ["/a".repeat(65), `/${"x".repeat(200)}`.repeat(21), "/a\0b"])
          assertError(yield* files.get(path), 422)
        assertError(yield* files.get("/a".repeat(64)), 404)
      })
    )
  })

  describe("spec 10.3: many servers", () => {
    it.effect("one file is written to all selected servers, as text or from another server", () =>
      Effect.gen(function* () {
        const { api, files, id } = yield* scene("embedded")
        const { files: far, id: other } = yield* scene("remote")
        const selector = { ids: [id, other, "unknown"] }
        const body = { selector, path: "/config/a.yml", content: "größe" }
        const { json } = yield* expectStatus(api, 200, "POST", "/api/files", { body })
        assert.deepStrictEqual([json[id], json[other]], [{ status: 200 }, { status: 200 }])
        assert.deepInclude(json.unknown, { code: "404" })
        assert.strictEqual((yield* far.get("/config/a.yml")).text, "größe")
        yield* files.put("/source", "from the source")
        const from = { server_id: id, path: "/source" }
        const copied = yield* expectStatus(api, 200, "POST", "/api/files", {
          body: { selector: { ids: [other] }, path: "/copy", from }
        })
        assert.deepStrictEqual(copied.json, { [other]: { status: 200 } })
        assert.strictEqual((yield* far.get("/copy")).text, "from the source")
        const missing = yield* expectStatus(api, 200, "POST", "/api/files", {
          body: { selector: { ids: [other] }, path: "/x", from: { server_id: id, path: "/none" } }
        })
        assert.deepInclude(missing.json[other], { code: "404" })
        for (const wrong of [{}, { content: "x", from }, { content: "x".repeat(1024 * 1024 + 1) }])
          assertError(
            yield* api.request("POST", "/api/files", { body: { selector, path: "/x", ...wrong } }),
            422
          )
        const largest = { selector: { ids: [id] }, path: "/x", content: "\0".repeat(1024 * 1024) }
        const { json: written } = yield* expectStatus(api, 200, "POST", "/api/files", { body: largest })
        assert.deepStrictEqual(written, { [id]: { status: 200 } })
      })
    )
  })

  describe("spec 10.1: rights", () => {
    it.effect("browse reads and does not write; files does both; other keys do neither", () =>
      Effect.gen(function* () {
        const { api, files, id } = yield* scene("embedded")
        yield* files.put("/a.txt", "x")
        const operator = filesOf(yield* keyed("Operator"), id)
        const reader = filesOf(yield* keyed("ReadOnly", { allow: ["browse"] }), id)
        const writer = filesOf(yield* keyed("Operator", { allow: ["files"] }), id)
        assertError(yield* operator.get("/a.txt"), 403, "the API key lacks: browse")
        assertError(yield* operator.put("/a.txt", "y"), 403, "the API key lacks: files")
        assert.strictEqual((yield* reader.get("/a.txt")).text, "x")
        for (const refused of [
          yield* reader.put("/a.txt", "y"),
          yield* reader.post("folder", { path: "/b" }),
          yield* reader.post("move", { moves: [{ from: "/a.txt", to: "/b" }] }),
          yield* reader.post("copy", { copies: [{ from: "/a.txt", to: "/b" }] }),
          yield* reader.post("delete", { paths: ["/a.txt"] }),
          yield* reader.post("mode", { paths: ["/a.txt"], mode: "0600" })
        ])
          assertError(refused, 403, "the API key lacks: files")
        assert.strictEqual((yield* writer.put("/a.txt", "y")).status, 204)
        assert.strictEqual((yield* files.get("/a.txt")).text, "y")
        const elsewhere = yield* keyed("Operator", { allow: ["files"], servers: ["other"] })
        assertError(yield* filesOf(elsewhere, id).get("/a.txt"), 404)
        assertError(
          yield* elsewhere.request("POST", "/api/files", {
            body: { selector: { ids: ["other"] }, path: "/x", from: { server_id: id, path: "/a.txt" } }
          }),
          404
        )
        assert.strictEqual((yield* api.request("GET", `/api/servers/${id}`)).status, 200)
      })
    )

    it.effect("a key with folders reaches nothing outside of them", () =>
      Effect.gen(function* () {
        const { files, id } = yield* scene("embedded")
        for (const path of ["/plugins/a", "/plugins2/b", "/secret"]) yield* files.put(path, "text")
        const api = yield* keyed("Operator", { allow: ["files"], paths: ["/plugins"] })
        const own = filesOf(api, id)
        assert.strictEqual((yield* own.get("/plugins/a")).text, "text")
        assert.strictEqual((yield* own.put("/plugins/b", "x")).status, 201)
        const outside = /^the API key does not reach \//
        for (const refused of [
          yield* own.get("/secret"),
          yield* own.get("/plugins2/b"),
          yield* own.put("/x", "y"),
          yield* api.request("GET", own.base),
          yield* own.archive("path=/plugins&path=/secret"),
          yield* own.search("text=text"),
          yield* own.post("folder", { path: "/x" }),
          yield* own.post("move", { moves: [{ from: "/secret", to: "/plugins/x" }] }),
          yield* own.post("move", { moves: [{ from: "/plugins/a", to: "/x" }] }),
          yield* own.post("copy", { copies: [{ from: "/secret", to: "/plugins/x" }] }),
          yield* own.post("delete", { paths: ["/plugins/a", "/secret"] }),
          yield* own.post("mode", { paths: ["/secret"], mode: "0600" }),
          yield* api.request("POST", "/api/files", {
            body: { selector: { ids: [id] }, path: "/x", content: "" }
          }),
          yield* api.request("POST", "/api/files", {
            body: { selector: { ids: [id] }, path: "/plugins/x", from: { server_id: id, path: "/secret" } }
          })
        ])
          assertError(refused, 403, outside)
        assert.strictEqual((yield* files.get("/secret")).text, "text")
      })
    )

    it.effect("writes and reads are in the audit log with their paths, and without contents", () =>
      Effect.gen(function* () {
        const { api, id } = yield* scene("embedded")
        // The reads of a key with many requests share entries.
        const files = filesOf(yield* keyed("Operator", { allow: ["files"] }), id)
        yield* files.put("/a.txt", "a secret text")
        yield* files.get("/a.txt")
        yield* files.head("/a.txt")
        yield* files.post("move", { moves: [{ from: "/a.txt", to: "/b.txt" }] })
        yield* files.post("delete", { paths: ["/b.txt"] })
        const { json, text } = yield* expectStatus(api, 200, "GET", `/api/audit?object=${id}&action=file`)
        const entries = json.map(
          ({ action, object, paths, result }: Record<string, Record<string, unknown>>) => [
            action,
            object?.kind,
            paths,
            result?.status
          ]
        )
        assert.deepStrictEqual(entries.toReversed(), [
          ["file.write", "server", ["/a.txt"], 201],
          ["file.read", "server", ["/a.txt"], 200],
          ["file.move", "server", ["/a.txt", "/b.txt"], 200],
          ["file.delete", "server", ["/b.txt"], 200]
        ])
        assert.notInclude(text, "a secret text")
        assert.notInclude(api.output(), "a secret text")
      })
    )
  })

  describe("spec 10.3: state of the server", () => {
    it.effect("a server that is installed is 409, an unknown one 404, a node that is not connected 503", () =>
      Effect.gen(function* () {
        const { api, id } = yield* scene("remote")
        const endless = yield* create(api, "endless")
        assertError(yield* filesOf(api, endless).put("/a", "x"), 409)
        const far = yield* Far
        yield* far.kill("SIGKILL")
        assertError(yield* filesOf(api, id).get("/a"), 503, "node is not connected: far")
        const all = yield* filesOf(api, id).post("delete", { paths: ["/a"] })
        assertError(all, 503)
        assertError(yield* filesOf(api, "unknown").get("/a"), 404)
      })
    )
  })
})
