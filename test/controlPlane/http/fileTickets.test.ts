import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Muster } from "../../support/Muster.ts"
import { expectStatus, installed } from "../../support/servers.ts"
import { assertError, options, service } from "./support/http.ts"
import { keyed } from "./support/keyed.ts"

const scene = Effect.gen(function* () {
  const api = yield* Muster
  const id = yield* installed(api, "kept")
  const base = `/api/servers/${id}/files`
  for (const path of ["/a.txt", "/b.txt"])
    yield* api.request("PUT", `${base}/content?path=${path}`, { raw: path })
  const reader = yield* keyed("ReadOnly", { allow: ["read", "browse"] })
  const { json } = yield* expectStatus(reader, 201, "POST", "/api/events/tickets")
  const ticket: string = json.ticket
  return {
    api,
    reader,
    fetched: (route: string) => api.request("GET", `${base}/${route}&ticket=${ticket}`, { key: null })
  }
})

layer(service(), options)("downloads with tickets", (it) => {
  describe("spec 10.3: a ticket in place of a key", () => {
    it.effect("it downloads one path, also in a second part after a break, and no other", () =>
      Effect.gen(function* () {
        const { api, fetched, reader } = yield* scene
        const whole = yield* fetched("content?path=/a.txt")
        assert.strictEqual(whole.status, 200)
        assert.strictEqual(whole.text, "/a.txt")
        assert.strictEqual((yield* fetched("content?path=/a.txt")).text, "/a.txt")
        assertError(yield* fetched("content?path=/b.txt"), 401)
        assertError(yield* fetched("archive?path=/a.txt"), 401)
        const { json } = yield* expectStatus(
          api,
          200,
          "GET",
          `/api/audit?action=file.read&actor=${reader.id}`
        )
        assert.isNotEmpty(json)
      })
    )

    it.effect("it lists and writes nothing", () =>
      Effect.gen(function* () {
        const { fetched } = yield* scene
        assertError(yield* fetched("search?name=a"), 401)
        assertError(yield* fetched("?path=/"), 401)
      })
    )

    it.effect("it ends with its key", () =>
      Effect.gen(function* () {
        const { api, fetched, reader } = yield* scene
        yield* expectStatus(api, 200, "DELETE", `/api/keys/${reader.id}`)
        assertError(yield* fetched("content?path=/a.txt"), 401)
      })
    )
  })
})
