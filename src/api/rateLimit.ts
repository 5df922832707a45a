/** Headers and answers of limits (decisions, section 1, "Failed logins"). */
import { Clock, Effect } from "effect"
import { HttpServerRespondable, HttpServerResponse } from "effect/http"
import type { TooManyRequests } from "../domain/errors.ts"

/** What a limit leaves: sent as `X-RateLimit-*`. */
export interface Allowance {
  readonly limit: number
  readonly remaining: number
  /** Milliseconds until the limit is reset. */
  readonly resetAfter: number
}

/** `X-RateLimit-*`; the reset is a Unix time in seconds. */
export const rateHeaders = ({
  limit,
  remaining,
  resetAfter
}: Allowance): Effect.Effect<Record<string, string>> =>
  Effect.map(Clock.currentTimeMillis, (now) => ({
    "x-ratelimit-limit": String(limit),
    "x-ratelimit-remaining": String(remaining),
    "x-ratelimit-reset": String(Math.ceil((now + resetAfter) / 1000))
  }))

/** The headers of a 429: {@link rateHeaders} and `Retry-After`, in whole seconds and at least one. */
export const refusalHeaders = (limit: number, resetAfter: number): Effect.Effect<Record<string, string>> =>
  Effect.map(rateHeaders({ limit, remaining: 0, resetAfter }), (headers) => ({
    ...headers,
    "retry-after": String(Math.max(1, Math.ceil(resetAfter / 1000)))
  }))

/** A 429 with its headers, for a handler to answer with. */
export const tooManyResponse = Effect.fnUntraced(function* (
  error: TooManyRequests,
  limit: number,
  resetAfter: number
) {
  return HttpServerResponse.setHeaders(
    yield* HttpServerRespondable.toResponse(error),
    yield* refusalHeaders(limit, resetAfter)
  )
})
