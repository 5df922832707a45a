import { Effect, Layer } from "effect"
import { HttpApiMiddleware } from "effect/http-api"
import { AnyFailure, SchemaErrors } from "../api/Failures.ts"
import { invalidRequest } from "./errorResponse.ts"

/** `SchemaErrors`: input that does not decode is 422. */
export const SchemaErrorsLayer = HttpApiMiddleware.layerSchemaErrorTransform(SchemaErrors, (error) => {
  const invalid = invalidRequest(error)
  return invalid === undefined ? Effect.die(error) : Effect.fail(invalid)
})

/** `AnyFailure`: declares errors only. */
export const AnyFailureLayer = Layer.succeed(
  AnyFailure,
  AnyFailure.of((handler) => handler)
)
