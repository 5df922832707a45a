import { Effect, Schema } from "effect"
import { HttpClientError } from "effect/http"

/**
 * A response with a status of the contract and another body is a defect for the derived client. Here it becomes a
 * failure, because another program may run at the address.
 */
export const undecodableFails = <A, E, R>(
  call: Effect.Effect<A, E, R>
): Effect.Effect<A, E | HttpClientError.HttpClientError | Schema.SchemaError, R> =>
  Effect.catchDefect(
    call,
    (defect): Effect.Effect<never, HttpClientError.HttpClientError | Schema.SchemaError> =>
      HttpClientError.isHttpClientError(defect) || Schema.isSchemaError(defect)
        ? Effect.fail(defect)
        : Effect.die(defect)
  )
