/** The headers and responses of limits (spec 1.6). */
import { Clock, Data, Effect } from "effect"
import { HttpServerRespondable, HttpServerResponse } from "effect/http"
import { TooManyRequests } from "../../contract/domain/errors.ts"

/** The rest of a limit, sent as `X-RateLimit-*`. */
export interface Allowance {
  readonly limit: number
  readonly remaining: number
  readonly resetAfter: number
}

/** `X-RateLimit-*`; the reset is a Unix time in seconds, never after the time to which `Retry-After` leads. */
export const rateHeaders = ({
  limit,
  remaining,
  resetAfter
}: Allowance): Effect.Effect<Record<string, string>> =>
  Effect.map(Clock.currentTimeMillis, (now) => ({
    "x-ratelimit-limit": String(limit),
    "x-ratelimit-remaining": String(remaining),
    "x-ratelimit-reset": String(Math.floor((now + resetAfter) / 1000))
  }))

/** The headers of a 429: {@link rateHeaders} and `Retry-After`, in whole seconds and at least one. */
export const refusalHeaders = (limit: number, resetAfter: number): Effect.Effect<Record<string, string>> =>
  Effect.map(rateHeaders({ limit, remaining: 0, resetAfter }), (headers) => ({
    ...headers,
    "retry-after": String(Math.max(1, Math.ceil(resetAfter / 1000)))
  }))

/** The limit is reached; {@link limitResponse} makes the response. */
export class LimitReached extends Data.TaggedError("LimitReached")<{
  readonly detail: string
  readonly hint: string
  readonly limit: number
  readonly resetAfter: number
}> {}

export const limitResponse = Effect.fnUntraced(function* (reached: LimitReached) {
  const { detail, hint, limit, resetAfter } = reached
  return HttpServerResponse.setHeaders(
    yield* HttpServerRespondable.toResponse(new TooManyRequests({ detail, hint })),
    yield* refusalHeaders(limit, resetAfter)
  )
})
