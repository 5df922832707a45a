import { Context, Duration, Effect, Layer } from "effect"
import type { HttpServerRequest } from "effect/http"
import { RateLimiter } from "effect/persistence"
import type { KeyRateLimit } from "../../contract/api/middleware.ts"
import {
  type BadRequest,
  Forbidden,
  TooManyRequests,
  Unauthorized,
  type Unavailable
} from "../../contract/domain/errors.ts"
import { FAILURES_PER_MINUTE, FailedLogins } from "./FailedLogins.ts"
import { isLocalRequest } from "./node/localSocket.ts"
import { lackingOf, type Principal } from "./Principal.ts"
import { rateHeaders, refusalHeaders } from "./rateLimit.ts"
import { requestQuery } from "./requestUrl.ts"
import type { Route } from "./routes.ts"

/** The outcome of the authentication: the audit entry, the headers and the log line of a request depend on it. */
export interface Caller {
  /** Unset without a valid key, and on routes that need none. */
  readonly principal?: Principal
  /** Headers of the response: the rest of a limit. */
  readonly headers: Readonly<Record<string, string>>
  /** Whether the peer has shown no valid key: the time in which it reads the response is bounded. */
  readonly isStranger: boolean
}

export interface Refusal {
  readonly error: BadRequest | Unauthorized | Forbidden | TooManyRequests | Unavailable
  readonly caller: Caller
}

export const stranger: Caller = { headers: {}, isStranger: true }

const refusal = (error: Refusal["error"], caller: Caller = stranger) =>
  Effect.fail<Refusal>({ error, caller })

/** Whether a browser asks for the permission of a page. It sends no key, so that this is no failed authentication. */
const isPreflight = ({ headers, method }: HttpServerRequest.HttpServerRequest) =>
  method === "OPTIONS" &&
  headers.authorization === undefined &&
  headers["access-control-request-method"] !== undefined

const noPermission = new Unauthorized({
  detail: "the Authorization header is missing",
  hint: "Set MUSTER_CORS_ORIGINS to the origin of the page."
})

/** The credentials of a request; the application verifies them. */
export class Credentials extends Context.Service<
  Credentials,
  {
    /**
     * Returns the caller of a request.
     * @param given.ticket  on a route that accepts one
     * @param given.isLocal whether the request came over the unix socket
     * @param given.limited whether the address has too many failed authentications
     */
    verify(given: {
      readonly authorization: string | undefined
      readonly ticket: string | undefined
      readonly isLocal: boolean
      readonly limited: Effect.Effect<boolean>
    }): Effect.Effect<Principal, Unauthorized | Unavailable>
  }
>()("muster/http/Credentials") {}

/** @param rateLimit requests per minute and key; 0: no limit */
const make = Effect.fnUntraced(function* (rateLimit: number) {
  const credentials = yield* Credentials
  const limiter = yield* RateLimiter.RateLimiter
  const failedLogins = yield* FailedLogins

  /** Counts a failure of the client address; over the limit, the response is 429. */
  const refuse = Effect.fnUntraced(function* (
    request: HttpServerRequest.HttpServerRequest,
    error: Unauthorized
  ) {
    const wait = yield* failedLogins.count(request)
    if (wait === undefined) return yield* refusal(error)
    const tooMany = new TooManyRequests({ detail: "too many failed authentications from this address" })
    const headers = yield* refusalHeaders(FAILURES_PER_MINUTE, wait)
    return yield* refusal(tooMany, { ...stranger, headers })
  })

  const authenticate = (request: HttpServerRequest.HttpServerRequest, route: Route) =>
    isPreflight(request)
      ? refusal(noPermission)
      : Effect.catchEager(
          credentials.verify({
            authorization: request.headers.authorization,
            ticket:
              route.isStream === true || route.acceptsTicket === true
                ? (new URLSearchParams(requestQuery(request.url)).get("ticket") ?? undefined)
                : undefined,
            isLocal: isLocalRequest(request),
            limited: failedLogins.isOver(request)
          }),
          (error) => (error._tag === "Unauthorized" ? refuse(request, error) : refusal(error))
        )

  const general: KeyRateLimit | undefined =
    rateLimit === 0
      ? undefined
      : {
          limit: rateLimit,
          window: "1 minute",
          detail: "the request limit of this API key is used up"
        }

  const consumed = Effect.fnUntraced(function* (
    principal: Principal,
    key: string,
    { detail, limit, window }: KeyRateLimit
  ) {
    const caller = { principal, isStranger: false }
    const over = yield* limiter.consume({ key, limit, window, onExceeded: "fail" }).pipe(
      Effect.flatMap(({ remaining, resetAfter }) =>
        rateHeaders({ limit, remaining, resetAfter: Duration.toMillis(resetAfter) })
      ),
      Effect.map((headers): Caller => ({ ...caller, headers })),
      Effect.catch(({ reason }) =>
        reason._tag === "RateLimitExceeded"
          ? Effect.succeed(Duration.toMillis(reason.retryAfter))
          : Effect.die(reason)
      )
    )
    if (typeof over !== "number") return over
    const headers = yield* refusalHeaders(limit, over)
    return yield* refusal(new TooManyRequests({ detail }), { principal, headers, isStranger: true })
  })

  return {
    /** Returns the caller; called again once the body has arrived, as the key may have been revoked. */
    authorize: (
      request: HttpServerRequest.HttpServerRequest,
      route: Route
    ): Effect.Effect<Caller, Refusal> => {
      const { right, scopes } = route
      if (scopes === undefined) return Effect.succeed(stranger)
      return Effect.flatMapEager(
        authenticate(request, route),
        (principal): Effect.Effect<Caller, Refusal> => {
          const caller = { principal, headers: {}, isStranger: false }
          const lacking = lackingOf(principal, right, scopes)
          return lacking === undefined
            ? Effect.succeed(caller)
            : refusal(new Forbidden({ detail: `the API key lacks${lacking}` }), caller)
        }
      )
    },
    /** Counts a request towards the limit of its caller. */
    limited: (caller: Caller, { name, rateLimit }: Route): Effect.Effect<Caller, Refusal> => {
      const { principal } = caller
      // Daemons report finished work, so that the general limit excludes them.
      const limit = rateLimit ?? (principal?.scope === "Node" ? undefined : general)
      return principal === undefined || limit === undefined
        ? Effect.succeed(caller)
        : consumed(principal, `${rateLimit === undefined ? "key" : name}:${principal.key_id}`, limit)
    }
  }
})

/** Authenticates a request and checks its right before anything else is read (spec 1.4, 1.6). */
export class Authentication extends Context.Service<
  Authentication,
  Effect.Success<ReturnType<typeof make>>
>()("muster/http/Authentication") {
  static readonly layer = (options: { readonly rateLimit: number }) =>
    Layer.effect(Authentication, make(options.rateLimit))
}
