import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { ByteSize, Cause, Duration, Effect } from "effect"
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
import { NodeApi } from "../api/NodeApi.ts"
import { CurrentPrincipal } from "../api/Principal.ts"
import { reasonPhrases } from "../domain/ApiError.ts"
import { elapsedMillis } from "../domain/elapsed.ts"
import { TimedOut } from "../domain/errors.ts"
import { RequestId } from "../domain/RequestId.ts"
import { allowedMethods } from "./allowedMethods.ts"
import { Authentication, type Refusal } from "./authenticate.ts"
import { errorResponse, isErrorStatus, responseOf, tooLarge, withErrorBody } from "./errorResponse.ts"
import { recordRequest } from "./metrics.ts"
import { makeRefusedRegistrations } from "./refusedRegistrations.ts"
import { requestIdOf } from "./requestId.ts"
import { bodyLimitOf, isStreamPath, requestPath, requestQuery } from "./requestPath.ts"
import { withStandardHeaders } from "./standardHeaders.ts"
import { boundReading } from "./strangers.ts"
import { strictBody, strictQuery } from "./strictBody.ts"

/** Settings of the pipeline. */
export interface PipelineOptions {
  readonly cors_origins: ReadonlyArray<string>
  readonly trusted_proxies: ReadonlyArray<IpNetwork.IpNetwork>
  /** Bytes. */
  readonly body_limit: number
  readonly timeout: Duration.Duration
  /** Paths outside the APIs that answer `GET`; default: none. */
  readonly pages?: ReadonlyArray<string>
  /** How long a peer without a key may take to read an answer; default: 60 s. */
  readonly reading?: Duration.Duration
}

type App = Effect.Effect<HttpServerResponse.HttpServerResponse, unknown, HttpServerRequest.HttpServerRequest>

/** A JSON body is read whatever `Content-Type` says (decisions, section 1, "Media types"). */
const asJson = (request: HttpServerRequest.HttpServerRequest) =>
  request.headers["content-type"] === "application/json"
    ? request
    : request.modify({ headers: Headers.set(request.headers, "content-type", "application/json") })

/** A WebSocket's handler lives as long as its connection. */
const mayLast = (request: HttpServerRequest.HttpServerRequest) =>
  request.headers.upgrade !== undefined && isStreamPath(requestPath(request.url))

/** The reason phrase of the head is the one of the error body. */
const withReason = (response: HttpServerResponse.HttpServerResponse) =>
  isErrorStatus(response.status)
    ? HttpServerResponse.setStatus(response, response.status, reasonPhrases[response.status])
    : response

/** What is unavailable may be there the next moment. */
const withRetryAfter = (response: HttpServerResponse.HttpServerResponse) =>
  response.status === 503 && response.headers["retry-after"] === undefined
    ? HttpServerResponse.setHeader(response, "retry-after", "1")
    : response

/**
 * A connection on which an upgrade was asked for, or whose request took too long and may go on arriving, ends with the
 * answer, and the answer says so.
 */
const ending =
  (request: HttpServerRequest.HttpServerRequest) => (response: HttpServerResponse.HttpServerResponse) =>
    request.headers.upgrade === undefined && response.status !== 504
      ? response
      : HttpServerResponse.setHeader(response, "connection", "close")

/** RFC 9112, section 3.2: HTTP/1.1 without `Host` is a bad request, whatever else it says. */
const lacksHost = (request: HttpServerRequest.HttpServerRequest) =>
  request.headers.host === undefined && NodeHttpServerRequest.toIncomingMessage(request).httpVersion === "1.1"

const refused = Effect.fnUntraced(function* ({ error, headers }: Refusal) {
  return HttpServerResponse.setHeaders(yield* HttpServerRespondable.toResponse(error), headers)
})

/**
 * What every request goes through, in this order: request id, CORS, authentication and scope, then the routes with
 * the limits of time and body; and on the way back the one error body, the log line and the metrics.
 */
export const Pipeline = (options: PipelineOptions) =>
  HttpRouter.middleware(
    Effect.gen(function* () {
      const scope = yield* Effect.scope
      const authentication = yield* Authentication
      const application = allowedMethods(ApplicationApi, options.pages ?? [])
      const daemons = allowedMethods(NodeApi)
      const tellRefused = makeRefusedRegistrations()
      const allowed = (url: string) => [...application(url), ...daemons(url)]

      const withErrorBodies = (app: App): App =>
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

      /**
       * 413 before the body is looked at (decisions, section 1, "Order of checks"), also where a route takes none. A
       * body of unannounced length is read for that; the route's handler gets what was read.
       */
      const withinBodyLimit = (app: App): App =>
        Effect.gen(function* () {
          const request = yield* HttpServerRequest.HttpServerRequest
          const { headers, method, url } = request
          const announced = Number(headers["content-length"] ?? 0)
          const chunked = headers["transfer-encoding"] !== undefined
          if (announced <= bodyLimitOf(url, options.body_limit) && !chunked) return yield* app
          if (!allowed(url).includes(method)) return yield* app
          if (!chunked) return yield* tooLarge
          yield* request.arrayBuffer
          return yield* app
        })

      /** Of a route that exists. The fall-backs of the blueprint list take any text. */
      const withStrictQuery = (app: App): App =>
        Effect.gen(function* () {
          const { method, url } = yield* HttpServerRequest.HttpServerRequest
          const query = requestQuery(url)
          if (
            query.includes("%") &&
            allowed(url).includes(method) &&
            requestPath(url) !== "/api/blueprints"
          ) {
            yield* strictQuery(query)
          }
          return yield* app
        })

      const authenticated = (app: App): App =>
        Effect.gen(function* () {
          const request = yield* HttpServerRequest.HttpServerRequest
          if (lacksHost(request)) {
            yield* boundReading(request, options.reading)
            return yield* errorResponse(
              400,
              "the Host header is missing",
              "Send a well-formed HTTP/1.1 request."
            )
          }
          const who = yield* Effect.result(authentication.principal(request))
          if (who._tag === "Failure") {
            // Forbidden: the key is valid.
            if (who.failure.error._tag !== "Forbidden") yield* boundReading(request, options.reading)
            return yield* refused(who.failure)
          }
          const served = withinBodyLimit(withStrictQuery(app)).pipe(
            Effect.provideService(CurrentPrincipal, who.success?.principal),
            Effect.provideService(HttpServerRequest.HttpServerRequest, strictBody(asJson(request), scope)),
            Effect.provideService(
              HttpIncomingMessage.MaxBodySize,
              ByteSize.bytes(bodyLimitOf(request.url, options.body_limit))
            )
          )
          const timed = mayLast(request)
            ? served
            : Effect.timeoutOrElse(served, {
                duration: options.timeout,
                orElse: () =>
                  Effect.fail(
                    new TimedOut({ detail: `no answer within ${Duration.toSeconds(options.timeout)} s` })
                  )
              })
          const response = yield* withErrorBodies(timed)
          if (who.success !== undefined) return HttpServerResponse.setHeaders(response, who.success.headers)
          yield* boundReading(request, options.reading)
          return response
        })

      const cors =
        options.cors_origins.length === 0
          ? (app: App): App => app
          : HttpMiddleware.cors({
              allowedOrigins: (origin) =>
                options.cors_origins.includes("*") || options.cors_origins.includes(origin),
              allowedHeaders: [
                "authorization",
                "content-type",
                "idempotency-key",
                "last-event-id",
                "x-request-id"
              ],
              exposedHeaders: [
                "x-request-id",
                "location",
                "retry-after",
                "x-ratelimit-limit",
                "x-ratelimit-remaining",
                "x-ratelimit-reset"
              ],
              maxAge: 600
            })
      const forwarded =
        options.trusted_proxies.length === 0
          ? (app: App): App => app
          : HttpMiddleware.xForwardedHeaders({ trustedProxies: options.trusted_proxies })

      return (app) =>
        Effect.gen(function* () {
          const started = yield* elapsedMillis
          const request = yield* HttpServerRequest.HttpServerRequest
          const id = requestIdOf(request.headers["x-request-id"])
          return yield* forwarded(cors(withErrorBodies(authenticated(app)))).pipe(
            Effect.map((response) => withStandardHeaders(withReason(response), id, request.url)),
            Effect.map(withRetryAfter),
            Effect.map(ending(request)),
            Effect.tap((response) => recordRequest(request, response, started)),
            Effect.tap((response) => tellRefused(request, response)),
            Effect.provideService(RequestId, id),
            Effect.annotateLogs({ request_id: id })
          )
        })
    }),
    { global: true }
  )
