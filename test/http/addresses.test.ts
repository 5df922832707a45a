import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Muster } from "../support/Muster.ts"
import { create, expectStatus } from "../support/servers.ts"
import { options, removed, service } from "./support/http.ts"

const env = { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26350-26399=play.example.com" }

layer(service(env), options)("addresses", (it) => {
  describe("application API 2.3, allocations", () => {
    it.effect("the alias of the node's address is in the allocations of its servers", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const id = yield* create(api, "kept")
        const { allocations } = (yield* expectStatus(api, 200, "GET", `/api/servers/${id}`)).json
        const { port } = allocations.default
        assert.deepStrictEqual(allocations, {
          force_outgoing_ip: false,
          default: { ip: "127.0.0.1", port },
          alias: "play.example.com",
          mappings: { "127.0.0.1": [port] }
        })
        yield* removed(id)
      })
    )
  })
})
