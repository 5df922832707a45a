import { Context, Duration, Effect, Layer, Option } from "effect"
import type { HttpServerRequest } from "effect/http"
import { RateLimiter } from "effect/persistence"
import type { Principal } from "../api/Principal.ts"
import { Forbidden, TooManyRequests, Unauthorized, type Unavailable } from "../domain/errors.ts"
import type { KeyScope } from "../domain/KeyScope.ts"
import { Tickets } from "../events/Tickets.ts"
import { ApiKeys } from "../keys/ApiKeys.ts"
import { isStreamPath, requestPath, requestQuery } from "./requestPath.ts"

const FAILURES_PER_MINUTE = 20

/** Paths that need a key: `/api` with all below it, known or not, and `/metrics`. */
const protectedPath = /^\/(?:api(?:\/|$)|metrics\/?$)/
const metricsPath = /^\/metrics/
/** The routes of daemons. */
const nodePath = /^\/api\/nodes\/[^/]+\/(?:register|internal)(?:\/|$)/

const scopesOf = (path: string): ReadonlyArray<KeyScope> =>
  metricsPath.test(path) ? ["Metrics", "AppAdmin"] : nodePath.test(path) ? ["Node"] : ["AppAdmin"]

/** Whole seconds, at least one, as `Retry-After` wants them. */
const waitSeconds = (duration: Duration.Duration) =>
  String(Math.max(1, Math.ceil(Duration.toSeconds(duration))))

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

        /** Counts one more failure of this client; the answer becomes 429 past the bound. */
        const refuse = Effect.fnUntraced(function* (
          request: HttpServerRequest.HttpServerRequest,
          error: Unauthorized
        ) {
          const client = Option.getOrElse(request.remoteAddress, () => "unknown")
          const over = yield* limiter
            .consume({
              key: `failed:${client}`,
              limit: FAILURES_PER_MINUTE,
              window: "1 minute",
              onExceeded: "fail"
            })
            .pipe(
              Effect.as(undefined),
              Effect.catch((failure) =>
                failure.reason._tag === "RateLimitExceeded"
                  ? Effect.succeed(failure.reason)
                  : Effect.as(Effect.logError("counting failed logins failed", failure), undefined)
              )
            )
          if (over === undefined) {
            return yield* Effect.fail<Refusal>({ error, headers: { "www-authenticate": "Bearer" } })
          }
          const seconds = waitSeconds(over.retryAfter)
          return yield* Effect.fail<Refusal>({
            error: new TooManyRequests({ detail: "too many failed authentications from this address" }),
            headers: { "retry-after": seconds }
          })
        })

        const byTicket = Effect.fnUntraced(function* (
          request: HttpServerRequest.HttpServerRequest,
          ticket: string
        ) {
          return yield* tickets.redeem(ticket).pipe(
            Effect.catchTags({
              Unauthorized: (error) => refuse(request, error),
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
            return yield* refuse(request, new Unauthorized({ detail: "the Authorization header is missing" }))
          }
          const match = bearer.exec(header)
          if (match?.[1]?.toLowerCase() !== "bearer" || match[2] === undefined) {
            return yield* refuse(
              request,
              new Unauthorized({ detail: "the Authorization header is not of the form `Bearer <key>`" })
            )
          }
          return yield* keys.verify(match[2]).pipe(
            Effect.catchTags({
              Unauthorized: (error) => refuse(request, error),
              Unavailable: (error) => Effect.fail<Refusal>({ error, headers: {} })
            })
          )
        })

        const limited = Effect.fnUntraced(function* (principal: Principal) {
          // Reports of daemons are work that is done, not requests for it.
          if (options.rate_limit === 0 || principal.scope === "Node") return {}
          const window = "1 minute" as const
          const result = yield* limiter
            .consume({
              key: `key:${principal.key_id}`,
              limit: options.rate_limit,
              window,
              onExceeded: "fail"
            })
            .pipe(
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
          const seconds = waitSeconds(result.reset)
          const headers = {
            "x-ratelimit-limit": String(options.rate_limit),
            "x-ratelimit-remaining": String(result.remaining),
            "x-ratelimit-reset": seconds
          }
          if (!result.over) return headers
          return yield* Effect.fail<Refusal>({
            error: new TooManyRequests({ detail: "the request limit of this API key is used up" }),
            headers: { ...headers, "retry-after": seconds }
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
            return { principal, headers: yield* limited(principal) }
          })
        })
      })
    )
}
