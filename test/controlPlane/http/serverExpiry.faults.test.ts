import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { subscribe } from "../../support/events.ts"
import { eventually } from "../../support/eventually.ts"
import { Muster } from "../../support/Muster.ts"
import { create, expectStatus, running, statusOf } from "../../support/servers.ts"
import { options, removed, service } from "./support/http.ts"

const patch = Effect.fnUntraced(function* (id: string, expires_in: number) {
  const api = yield* Muster
  return (yield* expectStatus(api, 200, "PATCH", `/api/servers/${id}`, { body: { expires_in } })).json
})

// The shortest expiry is 10 s.
layer(service({ MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26800-26899" }), options)("servers", (it) => {
  describe("spec 3.3: expires_in", () => {
    it.effect("an expired server is deleted, also while it runs; a change of the expiry counts", () =>
      Effect.gen(function* () {
        const api = yield* Muster
        const stream = yield* subscribe(api)
        const short = yield* running(api, "kept", { expires_in: 10 })
        const extended = yield* create(api, "kept", { expires_in: 10 })
        assert.isAbove(Date.parse((yield* patch(extended, 3600)).expires_at), Date.now())
        const made = yield* create(api, "kept")
        yield* patch(made, 10)
        yield* eventually(
          Effect.sync(() => [short, made].map((id) => stream.of(id).includes("deleted"))),
          (deleted) => deleted.every(Boolean)
        )
        assert.strictEqual(yield* statusOf(api, short), "gone")
        assert.strictEqual(yield* statusOf(api, extended), "offline")
        yield* removed(extended)
      })
    )
  })
})
