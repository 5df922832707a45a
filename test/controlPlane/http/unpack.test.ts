import { globSync, readdirSync } from "node:fs"
import { request } from "node:http"
import { join } from "node:path"
import { assert, describe, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { eventually } from "../../support/eventually.ts"
import type { Answer } from "../../support/Service.ts"
import { expectStatus } from "../../support/servers.ts"
import { archive, member } from "../../support/tar.ts"
import { zip } from "../../support/zip.ts"
import { Far, places, q, scene } from "./support/files.ts"
import { assertError, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

const tar = archive(
  member({ name: "./a.yml", content: "a: 1\n" }),
  member({ name: "./deep/", type: "5" }),
  member({ name: "./deep/b.yml", content: "b: 2\n" })
)

type Scene = Effect.Success<ReturnType<typeof scene>>

const put = Effect.fnUntraced(function* ({ api, files }: Scene, query: string, body: Buffer, key = api.key) {
  const sent = fetch(`${api.url}${files.base}/archive?${query}`, {
    method: "PUT",
    body: new Uint8Array(body),
    headers: { authorization: `Bearer ${key}`, prefer: "wait=30" }
  })
  const response = yield* Effect.promise(() => sent)
  const { headers, status } = response
  const json = yield* Effect.promise((): Promise<Answer["json"]> => response.json())
  return { headers, status, json }
})

const lastAudit = (api: Scene["api"]) =>
  Effect.map(expectStatus(api, 200, "GET", "/api/audit?limit=1"), ({ json }) => json[0])

layer(Layer.provideMerge(Far.layer, service()), options)("archives are unpacked", (it) => {
  describe("spec 10.7: PUT /archive", () => {
    it.effect.each(places)("%s: unpacks the body, and responds with the operation", (place) =>
      Effect.gen(function* () {
        const made = yield* scene(place)
        const { api, files, id } = made
        const { headers, json, status } = yield* put(made, `path=${q("/new/to")}`, tar)
        assert.strictEqual(status, 202, JSON.stringify(json))
        assert.deepInclude(json, { kind: "files.unpack", server_id: id, state: "done" })
        assert.deepStrictEqual(json.progress, { done: tar.length, total: tar.length, unit: "bytes" })
        assert.strictEqual(headers.get("location"), `/api/operations/${json.id}`)
        assert.strictEqual(headers.get("preference-applied"), "wait")
        assert.deepInclude(yield* lastAudit(api), { action: "file.unpack", paths: ["/new/to"] })
        assert.strictEqual((yield* files.get("/new/to/deep/b.yml")).text, "b: 2\n")
      })
    )

    it.effect.each(places)("%s: a refusal is the response, and the operation fails", (place) =>
      Effect.gen(function* () {
        const made = yield* scene(place)
        const { api, id } = made
        assert.strictEqual((yield* put(made, "path=/to", tar)).status, 202)
        const twice = yield* put(made, "path=/to", tar)
        assert.deepInclude(twice.json, {
          code: "409",
          detail: "/to/a.yml: it exists; overwrite=replace replaces it, overwrite=skip leaves it"
        })
        assert.strictEqual((yield* put(made, "path=/to&overwrite=skip", tar)).json.state, "done")
        const absolute = yield* put(made, "path=/to", archive(member({ name: "/etc/x" })))
        assert.deepInclude(absolute.json, { code: "422" })
        assert.match(absolute.json.detail, /^archive entry \/etc\/x: its path is absolute$/)
        const other = yield* put(made, "path=/to&format=zip", tar)
        assert.strictEqual(other.json.detail, "the archive is tar, not zip")
        const operations = eventually(
          Effect.map(expectStatus(api, 200, "GET", `/api/operations?server_id=${id}`), ({ json }) => json),
          (all: ReadonlyArray<{ readonly state: string }>) => all.every(({ state }) => state !== "running")
        )
        const states = (yield* operations).map(({ state }) => state)
        assert.deepStrictEqual(states, ["failed", "failed", "done", "failed", "done"])
        assert.deepInclude((yield* put(made, "format=zip", tar)).json, { code: "422" })
        assert.deepInclude((yield* put(made, "path=/to&overwrite=maybe", tar)).json, { code: "422" })
      })
    )

    it.effect.each(places)("%s: a connection that breaks leaves nothing, and the operation fails", (place) =>
      Effect.gen(function* () {
        const { api, files, id } = yield* scene(place)
        const node = place === "remote" ? yield* Far : api
        const sent = request(`${api.url}${files.base}/archive?path=/to`, {
          method: "PUT",
          headers: { authorization: `Bearer ${api.key}`, "content-length": String(tar.length) }
        })
        sent.on("error", () => {})
        sent.write(tar.subarray(0, 1500))
        const operation = (
          done: (one: { readonly state: string; readonly progress?: { readonly done: number } }) => boolean
        ) =>
          eventually(
            Effect.map(
              expectStatus(api, 200, "GET", `/api/operations?server_id=${id}`),
              ({ json }) => json[0] ?? { state: "none" }
            ),
            done
          )
        yield* operation(({ progress }) => progress?.done === 1500)
        sent.destroy()
        assert.deepInclude(yield* operation(({ state }) => state !== "running"), { state: "failed" })
        const [folder = ""] = globSync(join(node.dataDir, `**/servers/${id}/files`))
        assert.deepStrictEqual(
          readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) =>
            /muster-|^to/.test(name)
          ),
          []
        )
      })
    )

    it.effect("a key reaches its folders only, and needs the right files", () =>
      Effect.gen(function* () {
        const made = yield* scene("embedded")
        const browse = yield* keyed("ReadOnly", { allow: ["browse"] })
        assert.strictEqual((yield* put(made, "path=/to", tar, browse.key)).status, 403)
        const limited = yield* keyed("Operator", { allow: ["files"], paths: ["/plugins"] })
        assert.strictEqual((yield* put(made, "path=/to", tar, limited.key)).status, 403)
        assert.strictEqual((yield* put(made, "path=/plugins/x", tar, limited.key)).json.state, "done")
      })
    )
  })

  describe("spec 10.7: POST /unpack", () => {
    it.effect.each(places)("%s: unpacks an archive of the server", (place) =>
      Effect.gen(function* () {
        const made = yield* scene(place)
        const { api, files } = made
        const bytes = zip([{ name: "x.zip", content: zip([{ name: "inner/c.yml", content: "c: 3\n" }]) }])
        assert.strictEqual((yield* put(made, "path=/up", bytes)).json.state, "done")
        const unpacked = yield* api.request("POST", `${files.base}/unpack`, {
          body: { path: "/up/x.zip", to: "/up" },
          headers: { authorization: `Bearer ${api.key}`, prefer: "wait=30" }
        })
        assert.strictEqual(unpacked.status, 202, unpacked.text)
        assert.deepInclude(unpacked.json, { kind: "files.unpack", state: "done" })
        assert.deepInclude(yield* lastAudit(api), { action: "file.unpack", paths: ["/up/x.zip", "/up"] })
        assert.strictEqual((yield* files.get("/up/inner/c.yml")).text, "c: 3\n")
        assertError(yield* files.post("unpack", { path: "/none.zip", to: "/" }), 404)
        assertError(yield* files.post("unpack", { path: "/up", to: "/" }), 409)
        assertError(yield* files.post("unpack", { path: "/up/x.zip", to: "up" }), 422)
      })
    )
  })
})
