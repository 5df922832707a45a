import { Effect, Schema } from "effect"
import { HttpClientError } from "effect/http"

/**
 * An answer with a status of the contract and a body that is none is a defect for the derived client. What stands at
 * an address is not this program's own doing: it becomes a failure.
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
