import { ByteSize, Cause, Clock, Duration, Effect } from "effect"
import {
  Headers,
  HttpIncomingMessage,
  HttpMiddleware,
  HttpRouter,
  HttpServerRequest,
  HttpServerRespondable,
  HttpServerResponse
} from "effect/http"
import type { IpNetwork } from "effect/net"
import { ApplicationApi } from "../api/ApplicationApi.ts"
import { CurrentPrincipal } from "../api/Principal.ts"
import { TimedOut } from "../domain/errors.ts"
import { RequestId } from "../domain/RequestId.ts"
import { allowedMethods } from "./allowedMethods.ts"
import { Authentication, type Refusal } from "./authenticate.ts"
import { responseOf, withErrorBody } from "./errorResponse.ts"
import { recordRequest } from "./metrics.ts"
import { requestIdOf } from "./requestId.ts"

/** Settings of the pipeline. */
export interface PipelineOptions {
  readonly cors_origins: ReadonlyArray<string>
  readonly trusted_proxies: ReadonlyArray<IpNetwork.IpNetwork>
  /** Bytes. */
  readonly body_limit: number
  readonly timeout: Duration.Duration
}

type App = Effect.Effect<HttpServerResponse.HttpServerResponse, unknown, HttpServerRequest.HttpServerRequest>

const splitUrl = (url: string): readonly [path: string, query: string] => {
  const mark = url.indexOf("?")
  return mark === -1 ? [url, ""] : [url.slice(0, mark), url.slice(mark + 1)]
}

/** A JSON body is read whatever `Content-Type` says (decisions, section 1, "Media types"). */
const asJson = (request: HttpServerRequest.HttpServerRequest) =>
  request.headers["content-type"] === "application/json"
    ? request
    : request.modify({ headers: Headers.set(request.headers, "content-type", "application/json") })

/** A WebSocket's handler lives as long as its connection. */
const isUpgrade = (request: HttpServerRequest.HttpServerRequest) => request.headers.upgrade !== undefined

const refused = Effect.fnUntraced(function* ({ error, headers }: Refusal) {
  return HttpServerResponse.setHeaders(yield* HttpServerRespondable.toResponse(error), headers)
})

/**
 * What every request goes through, in this order: request id, CORS, authentication and scope, then the routes with
 * their time limit; and on the way back the one error body, the log line and the metrics.
 */
export const Pipeline = (options: PipelineOptions) =>
  HttpRouter.middleware(
    Effect.gen(function* () {
      const authentication = yield* Authentication
      const allowed = allowedMethods(ApplicationApi, ["/openapi.json", "/docs"])
      const bodyLimit = ByteSize.bytes(options.body_limit)

      const authenticated = (app: App): App =>
        Effect.gen(function* () {
          const request = yield* HttpServerRequest.HttpServerRequest
          const who = yield* Effect.result(authentication.principal(request, ...splitUrl(request.url)))
          if (who._tag === "Failure") return yield* refused(who.failure)
          const served = app.pipe(
            Effect.provideService(CurrentPrincipal, who.success?.principal),
            Effect.provideService(HttpServerRequest.HttpServerRequest, asJson(request)),
            Effect.provideService(HttpIncomingMessage.MaxBodySize, bodyLimit)
          )
          const response = isUpgrade(request)
            ? yield* served
            : yield* Effect.timeoutOrElse(served, {
                duration: options.timeout,
                orElse: () =>
                  Effect.fail(
                    new TimedOut({ detail: `no answer within ${Duration.toSeconds(options.timeout)} s` })
                  )
              })
          return who.success === undefined
            ? response
            : HttpServerResponse.setHeaders(response, who.success.headers)
        })

      const withErrorBodies = (app: App) =>
        Effect.gen(function* () {
          const request = yield* HttpServerRequest.HttpServerRequest
          return yield* app.pipe(
            Effect.catchCause((cause) => {
              if (Cause.hasInterruptsOnly(cause)) return Effect.interrupt
              return Effect.tap(responseOf(request, Cause.squash(cause), allowed), (response) =>
                response.status === 500 ? Effect.logError("request failed", cause) : Effect.void
              )
            }),
            Effect.flatMap(withErrorBody)
          )
        })

      const cors =
        options.cors_origins.length === 0
          ? (app: App): App => app
          : HttpMiddleware.cors({
              allowedOrigins: options.cors_origins.includes("*") ? () => true : options.cors_origins,
              allowedHeaders: [
                "authorization",
                "content-type",
                "idempotency-key",
                "last-event-id",
                "x-request-id"
              ],
              exposedHeaders: ["x-request-id", "location", "retry-after"],
              maxAge: 600
            })
      const forwarded =
        options.trusted_proxies.length === 0
          ? (app: App): App => app
          : HttpMiddleware.xForwardedHeaders({ trustedProxies: options.trusted_proxies })

      return (app) =>
        Effect.gen(function* () {
          const started = yield* Clock.currentTimeMillis
          const request = yield* HttpServerRequest.HttpServerRequest
          const id = requestIdOf(request.headers["x-request-id"])
          return yield* forwarded(cors(withErrorBodies(authenticated(app)))).pipe(
            Effect.map(HttpServerResponse.setHeader("x-request-id", id)),
            Effect.tap((response) => recordRequest(request, response, started)),
            Effect.provideService(RequestId, id),
            Effect.annotateLogs({ request_id: id })
          )
        })
    }),
    { global: true }
  )
