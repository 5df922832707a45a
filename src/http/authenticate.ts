import { Context, Duration, Effect, Layer } from "effect"
import type { HttpServerRequest } from "effect/http"
import { RateLimiter } from "effect/persistence"
import type { Principal } from "../api/Principal.ts"
import { rateHeaders, refusalHeaders } from "../api/rateLimit.ts"
import { lackingOf } from "../api/rights.ts"
import type { KeyRateLimit } from "../api/routePolicy.ts"
import { Forbidden, TooManyRequests, Unauthorized, type Unavailable } from "../domain/errors.ts"
import { FAILURES_PER_MINUTE, FailedLogins } from "./FailedLogins.ts"
import { isLocalRequest } from "./localSocket.ts"
import type { Route } from "./RouteTable.ts"
import { requestQuery } from "./requestPath.ts"

/** A refused request: its error and the headers of the response. */
export interface Refusal {
  readonly error: Unauthorized | Forbidden | TooManyRequests | Unavailable
  readonly headers: Record<string, string>
  /** The caller of a request with a valid key. */
  readonly principal?: Principal
}

/** An authenticated caller; `headers` are those of the general limit (`X-RateLimit-*`). */
export interface Admission {
  readonly principal?: Principal
  readonly headers: Record<string, string>
}

/** The outcome of the authentication: the audit entry, the headers and the log line of a request depend on it. */
export interface Caller {
  readonly principal: Principal | undefined
  /** Headers of the response. */
  readonly headers: Readonly<Record<string, string>> | undefined
  /** Whether the peer has shown no valid key: the time in which it reads the response is bounded. */
  readonly isStranger: boolean
}

/** @param admission undefined: the route needs no key */
export const callerOf = (admission: Admission | undefined): Caller => ({
  principal: admission?.principal,
  headers: admission?.headers,
  isStranger: admission === undefined
})

/** A forbidden request has a valid key. */
export const callerOfRefusal = ({ error, headers, principal }: Refusal): Caller => ({
  principal,
  headers,
  isStranger: error._tag !== "Forbidden"
})

const noKey = Effect.succeed(undefined)

/** Whether a browser asks for the permission of a page. It sends no key, so that this is no failed authentication. */
const isPreflight = ({ headers, method }: HttpServerRequest.HttpServerRequest) =>
  method === "OPTIONS" &&
  headers.authorization === undefined &&
  headers["access-control-request-method"] !== undefined

const preflightRefusal: Refusal = {
  error: new Unauthorized({
    detail: "the Authorization header is missing",
    hint: "Set MUSTER_CORS_ORIGINS to the origin of the page."
  }),
  headers: { "www-authenticate": "Bearer" }
}

/** The credentials of a request; the application verifies them. */
export class Credentials extends Context.Service<
  Credentials,
  {
    /**
     * Returns the caller of a request.
     *
     * @param given.authorization the header of that name
     * @param given.ticket        a ticket, on a route that accepts one
     * @param given.isLocal       whether the request came over the unix socket of the service
     * @param given.limited       whether the client address has too many failed authentications
     */
    verify(given: {
      readonly authorization: string | undefined
      readonly ticket: string | undefined
      readonly isLocal: boolean
      readonly limited: Effect.Effect<boolean>
    }): Effect.Effect<Principal, Unauthorized | Unavailable>
  }
>()("muster/http/Credentials") {}

/**
 * Authenticates a request and checks its scope before anything else is read (spec 1.4, 1.6).
 */
export class Authentication extends Context.Service<
  Authentication,
  {
    /** Returns undefined where the route needs no key. */
    admit(
      request: HttpServerRequest.HttpServerRequest,
      route: Route
    ): Effect.Effect<Admission | undefined, Refusal>
    /**
     * Checks the key of an admitted request again, once its body has arrived: the key may have been revoked meanwhile.
     * Returns the principal, or undefined where the route needs no key.
     */
    confirm(
      request: HttpServerRequest.HttpServerRequest,
      route: Route
    ): Effect.Effect<Principal | undefined, Refusal>
  }
>()("muster/http/Authentication") {
  /** @param options.rateLimit requests per minute and key; 0: no limit */
  static readonly layer = (options: { readonly rateLimit: number }) =>
    Layer.effect(
      Authentication,
      Effect.gen(function* () {
        const credentials = yield* Credentials
        const limiter = yield* RateLimiter.RateLimiter
        const failedLogins = yield* FailedLogins

        /** Counts a failure of the client address; over the limit, the response is 429. */
        const refuse = Effect.fnUntraced(function* (
          request: HttpServerRequest.HttpServerRequest,
          error: Unauthorized
        ) {
          const wait = yield* failedLogins.count(request)
          if (wait === undefined) {
            return yield* Effect.fail<Refusal>({ error, headers: { "www-authenticate": "Bearer" } })
          }
          return yield* Effect.fail<Refusal>({
            error: new TooManyRequests({ detail: "too many failed authentications from this address" }),
            headers: yield* refusalHeaders(FAILURES_PER_MINUTE, wait)
          })
        })

        const authenticate = (request: HttpServerRequest.HttpServerRequest, route: Route) =>
          isPreflight(request)
            ? Effect.fail<Refusal>(preflightRefusal)
            : Effect.catchEager(
                credentials.verify({
                  authorization: request.headers.authorization,
                  ticket: route.isStream
                    ? (new URLSearchParams(requestQuery(request.url)).get("ticket") ?? undefined)
                    : undefined,
                  isLocal: isLocalRequest(request),
                  limited: failedLogins.isOver(request)
                }),
                (error) =>
                  error._tag === "Unauthorized"
                    ? refuse(request, error)
                    : Effect.fail<Refusal>({ error, headers: {} })
              )

        const general: KeyRateLimit | undefined =
          options.rateLimit === 0
            ? undefined
            : {
                limit: options.rateLimit,
                window: "1 minute",
                detail: "the request limit of this API key is used up"
              }

        /** The limit of a request. Daemons report finished work, so that the general limit excludes them. */
        const limitOf = ({ scope }: Principal, { rateLimit }: Route) =>
          rateLimit ?? (scope === "Node" ? undefined : general)

        const limited = Effect.fnUntraced(function* (
          principal: Principal,
          route: Route,
          { detail, limit, window }: KeyRateLimit
        ) {
          const key = `${route.rateLimit === undefined ? "key" : route.name}:${principal.key_id}`
          const result = yield* limiter.consume({ key, limit, window, onExceeded: "fail" }).pipe(
            Effect.map((consumed) => ({
              remaining: consumed.remaining,
              reset: consumed.resetAfter,
              over: false
            })),
            Effect.catch((failure) =>
              failure.reason._tag === "RateLimitExceeded"
                ? Effect.succeed({ remaining: 0, reset: failure.reason.retryAfter, over: true })
                : Effect.die(failure)
            )
          )
          const resetAfter = Duration.toMillis(result.reset)
          if (!result.over) return yield* rateHeaders({ limit, remaining: result.remaining, resetAfter })
          return yield* Effect.fail<Refusal>({
            error: new TooManyRequests({ detail }),
            headers: yield* refusalHeaders(limit, resetAfter),
            principal
          })
        })

        const confirm = (
          request: HttpServerRequest.HttpServerRequest,
          route: Route
        ): Effect.Effect<Principal | undefined, Refusal> => {
          const { right, scopes } = route
          if (scopes === undefined) return noKey
          return Effect.flatMapEager(
            authenticate(request, route),
            (principal): Effect.Effect<Principal, Refusal> => {
              const lacking = lackingOf(principal, right, scopes)
              if (lacking === undefined) return Effect.succeed(principal)
              const error = new Forbidden({ detail: `the API key lacks${lacking}` })
              return Effect.fail({ error, headers: {}, principal })
            }
          )
        }

        return Authentication.of({
          confirm,
          admit: (request, route) =>
            Effect.flatMapEager(
              confirm(request, route),
              (principal): Effect.Effect<Admission | undefined, Refusal> => {
                if (principal === undefined) return noKey
                const bound = limitOf(principal, route)
                return bound === undefined
                  ? Effect.succeed({ principal, headers: {} })
                  : Effect.map(limited(principal, route, bound), (headers) => ({ principal, headers }))
              }
            )
        })
      })
    )
}
