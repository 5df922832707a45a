import { Context, Duration, Effect, Layer } from "effect"
import type { HttpServerRequest } from "effect/http"
import { RateLimiter } from "effect/persistence"
import type { Principal } from "../api/Principal.ts"
import { rateHeaders, refusalHeaders } from "../api/rateLimit.ts"
import { Forbidden, TooManyRequests, Unauthorized, type Unavailable } from "../domain/errors.ts"
import type { KeyScope } from "../domain/KeyScope.ts"
import { Tickets } from "../events/Tickets.ts"
import { ApiKeys } from "../keys/ApiKeys.ts"
import { type AuthFailure, countAuthFailure } from "../keys/authFailures.ts"
import { FAILURES_PER_MINUTE, FailedLogins } from "./FailedLogins.ts"
import { isRegistration, isStreamPath, requestPath, requestQuery } from "./requestPath.ts"

/** Paths that need a key: `/api` with all below it, known or not, and `/metrics`. */
const protectedPath = /^\/(?:api(?:\/|$)|metrics\/?$)/
const metricsPath = /^\/metrics/
/** The routes of daemons. */
const nodePath = /^\/api\/nodes\/[^/]+\/(?:register|internal)(?:\/|$)/

const scopesOf = (path: string): ReadonlyArray<KeyScope> =>
  metricsPath.test(path) ? ["Metrics", "AppAdmin"] : nodePath.test(path) ? ["Node"] : ["AppAdmin"]

const bearer = /^(\S+) +(\S+) *$/

/** A failure of authentication and how long to wait after too many of them. */
export interface Refusal {
  readonly error: Unauthorized | Forbidden | TooManyRequests | Unavailable
  readonly headers: Record<string, string>
}

/** What a general limit leaves to the key; sent as `X-RateLimit-*`. */
export type RateHeaders = Record<string, string>

/**
 * Finds out who calls, before anything else is looked at (decisions, section 1, "Order of checks" and
 * "Failed logins").
 */
export class Authentication extends Context.Service<
  Authentication,
  {
    /** Undefined where the path needs no key. */
    principal(
      request: HttpServerRequest.HttpServerRequest
    ): Effect.Effect<{ readonly principal: Principal; readonly headers: RateHeaders } | undefined, Refusal>
  }
>()("muster/http/Authentication") {
  /** @param options.rate_limit requests a minute and key; 0: no limit */
  static readonly layer = (options: { readonly rate_limit: number }) =>
    Layer.effect(
      Authentication,
      Effect.gen(function* () {
        const keys = yield* ApiKeys
        const tickets = yield* Tickets
        const limiter = yield* RateLimiter.RateLimiter
        const failedLogins = yield* FailedLogins

        /** Counts a failure of this client; the answer is 429 over the limit. */
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
        const refuseFor = (
          request: HttpServerRequest.HttpServerRequest,
          reason: AuthFailure,
          detail: string
        ) => Effect.andThen(countAuthFailure(reason), refuse(request, new Unauthorized({ detail })))

        const byTicket = Effect.fnUntraced(function* (
          request: HttpServerRequest.HttpServerRequest,
          ticket: string
        ) {
          const limited = yield* failedLogins.isOver(request)
          return yield* tickets.redeem(ticket, { limited }).pipe(
            Effect.catchTags({
              Unauthorized: (error) => Effect.andThen(countAuthFailure("ticket"), refuse(request, error)),
              Unavailable: (error) => Effect.fail<Refusal>({ error, headers: {} })
            })
          )
        })

        const authenticate = Effect.fnUntraced(function* (
          request: HttpServerRequest.HttpServerRequest,
          path: string
        ) {
          const header = request.headers.authorization
          if (header === undefined) {
            const ticket = isStreamPath(path)
              ? new URLSearchParams(requestQuery(request.url)).get("ticket")
              : null
            if (ticket !== null) return yield* byTicket(request, ticket)
            return yield* refuseFor(request, "no_header", "the Authorization header is missing")
          }
          const match = bearer.exec(header)
          if (match?.[1]?.toLowerCase() !== "bearer" || match[2] === undefined) {
            return yield* refuseFor(
              request,
              "malformed_header",
              "the Authorization header is not of the form `Bearer <key>`"
            )
          }
          const limited = yield* failedLogins.isOver(request)
          return yield* keys.verify(match[2], { limited }).pipe(
            Effect.catchTags({
              Unauthorized: (error) => refuse(request, error),
              Unavailable: (error) => Effect.fail<Refusal>({ error, headers: {} })
            })
          )
        })

        /** What limits this request; undefined: nothing does. */
        const limitOf = ({ key_id, scope }: Principal, path: string) => {
          if (scope !== "Node") {
            const detail = "the request limit of this API key is used up"
            const limit = options.rate_limit
            return limit === 0
              ? undefined
              : ({ key: `key:${key_id}`, limit, window: "1 minute", detail } as const)
          }
          // Reports of daemons are work that is done, not requests for it. A registration is read in full and written.
          if (!isRegistration(path)) return undefined
          const detail = "a node registers at most once a second"
          return { key: `register:${key_id}`, limit: 1, window: "1 second", detail } as const
        }

        const limited = Effect.fnUntraced(function* (principal: Principal, path: string) {
          const bound = limitOf(principal, path)
          if (bound === undefined) return {}
          const { detail, ...consumed } = bound
          const result = yield* limiter.consume({ ...consumed, onExceeded: "fail" }).pipe(
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
          const { limit } = bound
          const resetAfter = Duration.toMillis(result.reset)
          if (!result.over) return yield* rateHeaders({ limit, remaining: result.remaining, resetAfter })
          return yield* Effect.fail<Refusal>({
            error: new TooManyRequests({ detail }),
            headers: yield* refusalHeaders(limit, resetAfter)
          })
        })

        return Authentication.of({
          principal: Effect.fnUntraced(function* (request) {
            const path = requestPath(request.url)
            if (!protectedPath.test(path)) return undefined
            const principal = yield* authenticate(request, path)
            const scopes = scopesOf(path)
            if (!scopes.includes(principal.scope)) {
              return yield* Effect.fail<Refusal>({
                error: new Forbidden({ detail: `the API key lacks the scope ${scopes[0]}` }),
                headers: {}
              })
            }
            return { principal, headers: yield* limited(principal, path) }
          })
        })
      })
    )
}
