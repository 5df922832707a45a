import { Effect } from "effect"
import { HttpMiddleware, type HttpServerRequest, type HttpServerResponse } from "effect/http"

type Preflight = Effect.Effect<
  HttpServerResponse.HttpServerResponse | undefined,
  never,
  HttpServerRequest.HttpServerRequest
>

/**
 * Returns the response to a browser that asks for the permission of a page; undefined for any other request, whose
 * response gets the headers of CORS.
 */
export const makePreflight = (corsOrigins: ReadonlyArray<string>): Preflight => {
  if (corsOrigins.length === 0) return Effect.succeed(undefined)
  const cors = HttpMiddleware.cors({
    allowedOrigins: (origin) => corsOrigins.includes("*") || corsOrigins.includes(origin),
    allowedHeaders: [
      "authorization",
      "content-type",
      "idempotency-key",
      "if-none-match",
      "last-event-id",
      "prefer",
      "x-request-id"
    ],
    exposedHeaders: [
      "x-request-id",
      "etag",
      "link",
      "location",
      "preference-applied",
      "retry-after",
      "x-muster-cursor",
      "x-muster-timed-out",
      "x-ratelimit-limit",
      "x-ratelimit-remaining",
      "x-ratelimit-reset"
    ],
    maxAge: 600
  })
  return Effect.catch(cors(Effect.fail("no preflight")), () => Effect.succeed(undefined))
}
