import { assert, describe, layer } from "@effect/vitest"
import { Effect } from "effect"
import { textOf } from "../../support/docs.ts"
import { Muster } from "../../support/Muster.ts"
import { done, refused } from "../support.ts"

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
  describe("spec 3.19: ports, and what can be undeleted", () => {
    it.effect(
      "each port that is taken is named with the one in its place; a deletion says whether it is final",
      () =>
        Effect.gen(function* () {
          const create = ["servers", "create", "saved", "--start", "--wait", "-o", "id", "--name"]
          const id = yield* done(...create, "lobby")
          assert.include(yield* refused(64, "servers", "delete", "lobby"), "Only a saved server that has run")
          assert.match(
            yield* done("servers", "delete", "lobby", "--yes"),
            new RegExp(`^${id} is deleted; it can be undeleted until 20`)
          )
          assert.match(yield* done("servers", "list", "--deleted"), /KEPT UNTIL/)
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
          yield* done("servers", "delete", "last", "--yes")
          const unused = yield* done("servers", "create", "saved", "-o", "id")
          const deleted = yield* done("servers", "delete", unused, "lobby", "--yes")
          assert.include(deleted, `${unused} is deleted; it cannot be undeleted`)
          assert.include(deleted, `${id} is deleted; it can be undeleted until 20`)
        })
    )
  })
})
