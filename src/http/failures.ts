import { Effect, Layer } from "effect"
import { HttpApiMiddleware } from "effect/http-api"
import { AnyFailure, SchemaErrors } from "../api/Failures.ts"
import { invalidInput } from "./invalidInput.ts"

/** `SchemaErrors`: input that does not decode is 422. */
export const SchemaErrorsLayer = HttpApiMiddleware.layerSchemaErrorTransform(
  SchemaErrors,
  Effect.fnUntraced(function* (error, { endpoint }) {
    const invalid = yield* invalidInput(error, endpoint)
    return invalid === undefined ? yield* Effect.die(error) : yield* invalid
  })
)

/** `AnyFailure`: declares errors only. */
export const AnyFailureLayer = Layer.succeed(
  AnyFailure,
  AnyFailure.of((handler) => handler)
)
