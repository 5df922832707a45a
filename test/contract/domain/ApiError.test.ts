import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { HttpServerRespondable } from "effect/http"
import { Conflict } from "../../../src/contract/domain/errors.ts"

class RefusedForNow extends Conflict {}

describe("spec 1.4: errors of the API", () => {
  it.effect("an error is decoded as its class, also after one was sent as a response", () =>
    Effect.gen(function* () {
      const sent = yield* HttpServerRespondable.toResponse(new RefusedForNow({ detail: "busy" }))
      assert.strictEqual(sent.status, 409)
      const body = {
        code: "409",
        status: "Conflict",
        detail: "busy",
        hint: "Read the current state and try again.",
        request_id: "r"
      }
      const decoded = yield* Schema.decodeUnknownEffect(Conflict)(body)
      assert.instanceOf(decoded, Conflict)
      assert.notInstanceOf(decoded, RefusedForNow)
    })
  )
})
