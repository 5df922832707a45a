import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { startService } from "../../support/Service.ts"

describe("spec 3.8: wait", () => {
  it.live(
    "the longest wait has a response",
    () =>
      Effect.gen(function* () {
        const { request } = yield* startService()
        const created = yield* request("POST", "/api/servers", {
          body: { blueprint_id: "demo", overrides: { save: true } },
          headers: { prefer: "wait=30" }
        })
        const { headers, status } = yield* request(
          "GET",
          `/api/servers/${created.json.id}?wait=running&timeout=60`
        )
        assert.strictEqual(status, 200)
        assert.strictEqual(headers.get("x-muster-timed-out"), "true")
      }).pipe(Effect.scoped),
    120_000
  )
})
