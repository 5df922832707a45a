import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { textOf } from "../../support/docs.ts"
import { Muster } from "../../support/Muster.ts"
import { done } from "../support.ts"

const twoPorts = Muster.layer(
  {
    software: { "demo.yml": textOf("software/demo.yml") },
    blueprints: {
      "saved.yml": textOf("blueprints/demo-saved.yml").replace("id: demo-saved", "id: saved"),
      "mixins/defaults.yml": textOf("blueprints/mixins/defaults.yml")
    }
  },
  { MUSTER_EMBEDDED_ALLOCATIONS: "127.0.0.1:26430-26431" }
)

layer(twoPorts, { excludeTestServices: true, timeout: "60 seconds" })("muster servers undelete", (it) => {
  describe("spec 3.19: ports", () => {
    it.effect("each port that is taken is named with the one in its place", () =>
      Effect.gen(function* () {
        const create = ["servers", "create", "saved", "--start", "--wait", "-o", "id", "--name"]
        const id = yield* done(...create, "lobby")
        yield* done("servers", "delete", "lobby", "--yes")
        assert.strictEqual(
          yield* done("servers", "undelete", "lobby"),
          `${id} is back at 127.0.0.1:26430, offline`
        )
        yield* done("servers", "delete", "lobby", "--yes")
        yield* done(...create, "other")
        yield* done(...create, "last")
        yield* done("servers", "delete", "other", "--yes", "--purge")
        assert.strictEqual(
          yield* done("servers", "undelete", "lobby"),
          `${id} is back at 127.0.0.1:26431, offline\nits port 127.0.0.1:26430 is taken; it has 127.0.0.1:26431 in its place`
        )
      })
    )
  })
})
