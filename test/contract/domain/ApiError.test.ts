import { assert, describe, it } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { HttpServerRespondable } from "effect/http"
import { ApiError } from "../../../src/contract/domain/ApiError.ts"

class Refused extends ApiError<Refused>()("Refused", 409, "Wait.") {}
class RefusedForNow extends Refused {}

describe("spec 1.4: errors of the API", () => {
  it.effect("an error is decoded as its class, also after one was sent as a response", () =>
    Effect.gen(function* () {
      const sent = yield* HttpServerRespondable.toResponse(new RefusedForNow({ detail: "busy" }))
      assert.strictEqual(sent.status, 409)
      const body = { code: "409", status: "Conflict", detail: "busy", hint: "Wait.", request_id: "r" }
      const decoded = yield* Schema.decodeUnknownEffect(Refused)(body)
      assert.instanceOf(decoded, Refused)
      assert.notInstanceOf(decoded, RefusedForNow)
    })
  )
})
