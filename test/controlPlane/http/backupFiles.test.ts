import { createHash } from "node:crypto"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as fc from "fast-check"
import type { Muster } from "../../support/Muster.ts"
import { expectStatus } from "../../support/servers.ts"
import { Far, places, scene } from "./support/files.ts"
import { assertError, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

type Api = Pick<Muster["Service"], "request" | "key" | "url">

const digest = (text: string) => createHash("sha256").update(text).digest("hex")

/** Makes a server with a world, and its backup; returns the path of the backup. */
const backedUp = Effect.fnUntraced(function* (place: Parameters<typeof scene>[0]) {
  const { api, files, id: server } = yield* scene(place)
  for (const [path, text] of [
    ["/world/level.dat", "level of the world"],
    ["/world/region/r.0.0.mca", "region"],
    ["/world/empty", ""],
    ["/secret.txt", "hidden"]
  ] as const)
    yield* files.put(path, text)
  const headers = { authorization: `Bearer ${api.key}`, prefer: "wait=60" }
  yield* expectStatus(api, 202, "POST", `/api/servers/${server}/backups`, {
    body: {},
    headers
  })
  const [{ id }] = (yield* expectStatus(api, 200, "GET", `/api/servers/${server}/backups`)).json
  return { api, server, id, path: `/api/backups/${id}` }
})

const named = (api: Api, path: string, query = "") =>
  Effect.map(expectStatus(api, 200, "GET", `${path}/files${query}`), ({ headers, json }) => ({
    names: json.map(({ name }: { readonly name: string }) => name),
    entries: json,
    next: /<([^>]+)>; rel="next"/.exec(headers.get("link") ?? "")?.[1]
  }))

layer(Layer.provideMerge(Far.layer, service()), options)("the files of backups", (it) => {
  describe("spec 12.9: the routes", () => {
    it.effect.each(places)(
      "%s: folders are listed in pages, and a file is downloaded whole and in part",
      (place) =>
        Effect.gen(function* () {
          const { api, id, path, server } = yield* backedUp(place)
          const world = yield* named(api, path, "?path=/world")
          assert.deepStrictEqual(world.names, ["empty", "level.dat", "region"])
          assert.deepInclude(world.entries[1], {
            name: "level.dat",
            type: "file",
            size: 18,
            mode: "0644",
            sha256: digest("level of the world")
          })
          assert.deepInclude(world.entries[2], { type: "folder", size: 0 })
          assert.include((yield* named(api, path)).names, "secret.txt")
          const first = yield* named(api, path, "?path=/world&limit=2")
          assert.deepStrictEqual(first.names, ["empty", "level.dat"])
          const { json, headers: last } = yield* expectStatus(api, 200, "GET", first.next ?? "")
          assert.deepStrictEqual([json[0].name, last.get("link")], ["region", null])
          yield* expectStatus(api, 200, "DELETE", `/api/servers/${server}`)
          const content = `${path}/files/content?path=/world/level.dat`
          const whole = yield* expectStatus(api, 200, "GET", content)
          assert.strictEqual(whole.text, "level of the world")
          const etag = `"${digest("level of the world")}"`
          for (const [name, value] of [
            ["etag", etag],
            ["content-type", "application/octet-stream"],
            ["content-disposition", `attachment; filename="level.dat"; filename*=UTF-8''level.dat`],
            ["x-content-type-options", "nosniff"],
            ["content-length", "18"]
          ] as const)
            assert.strictEqual(whole.headers.get(name), value)
          const asked = (given: Record<string, string>) => ({
            headers: { authorization: `Bearer ${api.key}`, ...given }
          })
          const part = yield* expectStatus(api, 206, "GET", content, asked({ range: "bytes=6-7" }))
          assert.deepStrictEqual([part.text, part.headers.get("content-range")], ["of", "bytes 6-7/18"])
          const stale = asked({ range: "bytes=6-7", "if-range": '"other"' })
          assert.strictEqual(
            (yield* expectStatus(api, 200, "GET", content, stale)).text,
            "level of the world"
          )
          yield* expectStatus(api, 304, "GET", content, asked({ "if-none-match": etag }))
          const beyond = yield* api.request("GET", content, asked({ range: "bytes=18-" }))
          assertError(beyond, 416)
          assert.strictEqual(beyond.headers.get("content-range"), "bytes */18")
          const head = yield* api.request("HEAD", content)
          assert.deepStrictEqual([head.status, head.headers.get("content-length")], [200, "18"])
          assert.strictEqual(
            (yield* expectStatus(api, 200, "GET", `${path}/files/content?path=/world/empty`)).text,
            ""
          )
          const archive = yield* api.request("HEAD", `${path}/archive`)
          assert.strictEqual(archive.headers.get("accept-ranges"), "bytes")
          const tail = yield* expectStatus(api, 206, "GET", `${path}/archive`, asked({ range: "bytes=-1" }))
          assert.match(tail.headers.get("content-range") ?? "", /^bytes (\d+)-\1\/\d+$/)
          const entries = (yield* expectStatus(api, 200, "GET", "/api/audit?limit=20&result=ok")).json
          const read = entries.find(({ action }: { readonly action: string }) => action === "backup.read")
          assert.include(JSON.stringify(entries), "/world/level.dat")
          assert.isDefined(read)
          yield* expectStatus(api, 204, "DELETE", `/api/backups/${id}`)
          assertError(yield* api.request("GET", `${path}/files`), 404, `backup not found: ${id}`)
        })
    )

    it.effect("a ticket downloads one file of one backup; other keys and foreign servers get none", () =>
      Effect.gen(function* () {
        const { api, path, server } = yield* backedUp("embedded")
        const { ticket } = (yield* expectStatus(api, 201, "POST", "/api/events/tickets")).json
        const content = (file: string) => `${path}/files/content?path=${file}&ticket=${ticket}`
        yield* expectStatus(api, 200, "GET", content("/world/level.dat"), { key: null })
        assertError(yield* api.request("GET", content("/secret.txt"), { key: null }), 401)
        const keeper = yield* keyed("Operator", { allow: ["backups"], servers: [server] })
        assert.include((yield* named(keeper, path)).names, "world")
        const other = (yield* scene("embedded")).id
        const foreign = yield* keyed("Operator", { allow: ["backups"], servers: [other] })
        const plain = yield* keyed("Operator", { allow: ["browse"] })
        for (const below of ["/files", "/files/content?path=/secret.txt"]) {
          assertError(yield* foreign.request("GET", `${path}${below}`), 404)
          assertError(yield* plain.request("GET", `${path}${below}`), 403)
        }
      })
    )

    it.effect("paths of any kind get a documented status and an error body", () =>
      Effect.gen(function* () {
        const { api, path } = yield* backedUp("embedded")
        for (const [below, status] of [
          ["/files?path=/world/level.dat", 409],
          ["/files?path=/nothing", 404],
          ["/files?path=/world/level.dat/x", 404],
          ["/files?path=/world/..", 422],
          ["/files?path=world", 422],
          ["/files?path=/a%00b", 422],
          ["/files?limit=0", 422],
          ["/files?limit=1001", 422],
          ["/files/content", 422],
          ["/files/content?path=/world", 409],
          ["/files/content?path=/", 409],
          ["/files/content?path=/nothing", 404],
          ["/files/content?path=/../etc/passwd", 422]
        ] as const)
          assertError(yield* api.request("GET", `${path}${below}`), status)
        const names = fc.oneof(
          fc.string({ unit: "binary", maxLength: 20 }),
          fc.constantFrom("..", ".", "world", "%", "%FF", '"', "\\", '","type":', "a".repeat(300))
        )
        const paths = fc.array(names, { maxLength: 5 }).map((all) => `/${all.join("/")}`)
        const asks = fc.record({
          path: paths,
          after: fc.option(names, { nil: "" }),
          limit: fc.constantFrom("", "1", "1000", "x"),
          range: fc.constantFrom("", "bytes=0-", "bytes=5-2", "bytes=-0", "x"),
          isList: fc.boolean()
        })
        const check = Effect.fnUntraced(function* (
          one: typeof asks extends fc.Arbitrary<infer A> ? A : never
        ) {
          const { after, isList, limit, path: file, range } = one
          const query = isList ? { path: file, after, limit } : { path: file }
          const address = `${path}/files${isList ? "" : "/content"}?${new URLSearchParams(query)}`
          const headers = { authorization: `Bearer ${api.key}`, ...(range === "" ? {} : { range }) }
          const response = yield* api.request("GET", address, { headers })
          if (response.status === 200 || response.status === 206) return
          const status = ([404, 409, 416, 422] as const).find((known) => known === response.status)
          if (status === undefined) return assert.fail(`${response.status} of ${address}`)
          assertError(response, status)
        })
        yield* Effect.forEach(fc.sample(asks, 60), check, { discard: true })
      })
    )
  })
})
