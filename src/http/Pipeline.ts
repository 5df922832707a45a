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
import { CurrentPrincipal, type Principal } from "../api/Principal.ts"
import { CurrentSlsRequest, isSls, slsTarget } from "../api/sls.ts"
import { reasonPhrases } from "../domain/ApiError.ts"
import { AuditRecorder, ServerNameOf } from "../domain/AuditedRequest.ts"
import { elapsedMillis } from "../domain/elapsed.ts"
import { TimedOut } from "../domain/errors.ts"
import { RequestId } from "../domain/RequestId.ts"
import { actorOf, beginAudit, withAudit } from "./auditing.ts"
import { Authentication, type Refusal } from "./authenticate.ts"
import { errorResponse, isErrorStatus, responseOf, tooLarge, withErrorBody } from "./errorResponse.ts"
import { recordRequest } from "./metrics.ts"
import type { RouteMatch, RouteTable } from "./RouteTable.ts"
import { isApi, requestPath, requestQuery } from "./requestPath.ts"
import { requestIdOf, withStandardHeaders } from "./standardHeaders.ts"
import { boundReading } from "./strangers.ts"
import { strictBody, strictPath, strictQuery } from "./strictBody.ts"

/** Settings of the pipeline. */
export interface PipelineOptions {
  readonly routes: RouteTable
  /** Bytes. */
  readonly bodyLimit: number
  readonly timeout: Duration.Duration
  /** Origins of browsers that may call; default: none. */
  readonly corsOrigins?: ReadonlyArray<string>
  readonly trustedProxies?: ReadonlyArray<IpNetwork.IpNetwork>
  /** Time in which a peer without a key reads a response; default: 60 s. */
  readonly reading?: Duration.Duration
  /** Whether requests of SLS's own clients are treated as such; default: no. */
  readonly slsClients?: boolean
  /** Called with each response. */
  readonly onResponse?: (
    match: RouteMatch,
    response: HttpServerResponse.HttpServerResponse
  ) => Effect.Effect<void>
}

type App = Effect.Effect<HttpServerResponse.HttpServerResponse, unknown, HttpServerRequest.HttpServerRequest>

/** Declares a body as JSON, regardless of its `Content-Type` (decisions, section 1, "Media types"). */
const asJson = (request: HttpServerRequest.HttpServerRequest) =>
  request.headers["content-type"] === "application/json"
    ? request
    : request.modify({ headers: Headers.set(request.headers, "content-type", "application/json") })

/** Sets the reason phrase of the head to that of the error body. */
const withReason = (response: HttpServerResponse.HttpServerResponse) =>
  isErrorStatus(response.status)
    ? HttpServerResponse.setStatus(response, response.status, reasonPhrases[response.status])
    : response

/** Keeps the responses to SLS's own clients apart in caches. */
const varying = (response: HttpServerResponse.HttpServerResponse, url: string) => {
  if (!isApi(requestPath(url))) return response
  const { vary } = response.headers
  return HttpServerResponse.setHeader(response, "vary", vary === undefined ? "Accept" : `${vary}, Accept`)
}

/** Asks the caller of an unavailable service to retry after a second. */
const withRetryAfter = (response: HttpServerResponse.HttpServerResponse) =>
  response.status === 503 && response.headers["retry-after"] === undefined
    ? HttpServerResponse.setHeader(response, "retry-after", "1")
    : response

/**
 * Closes the connection after the response to an upgrade request, and to a request that timed out and may still be
 * arriving.
 */
const ending =
  (request: HttpServerRequest.HttpServerRequest) => (response: HttpServerResponse.HttpServerResponse) =>
    request.headers.upgrade === undefined && response.status !== 504
      ? response
      : HttpServerResponse.setHeader(response, "connection", "close")

/** RFC 9112, section 3.2: HTTP/1.1 without `Host` is a bad request. */
const lacksHost = (request: HttpServerRequest.HttpServerRequest) =>
  request.headers.host === undefined && NodeHttpServerRequest.toIncomingMessage(request).httpVersion === "1.1"

const refused = Effect.fnUntraced(function* ({ error, headers }: Refusal) {
  return HttpServerResponse.setHeaders(yield* HttpServerRespondable.toResponse(error), headers)
})

/**
 * Processes every request of the service and of a daemon in this order: request id, CORS, authentication and scope,
 * route, limits of time and body, query. Then it adds the error body, the log line and the metrics.
 */
export const Pipeline = (options: PipelineOptions) =>
  HttpRouter.middleware(
    Effect.gen(function* () {
      const scope = yield* Effect.scope
      const authentication = yield* Authentication
      const record = yield* AuditRecorder
      const nameOf = yield* ServerNameOf
      const { corsOrigins = [], onResponse = () => Effect.void, trustedProxies = [] } = options
      const { allowed, match } = options.routes

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
       * Returns 413 before the body is decoded (decisions, section 1, "Order of checks"), also on a route without a
       * body. A body of unannounced length is read for this check; the handler uses the bytes that were read.
       */
      const withinBodyLimit = (app: App, limit: number): App =>
        Effect.gen(function* () {
          const request = yield* HttpServerRequest.HttpServerRequest
          const announced = Number(request.headers["content-length"] ?? 0)
          const chunked = request.headers["transfer-encoding"] !== undefined
          if (announced > limit && !chunked) return yield* tooLarge
          if (chunked) yield* request.arrayBuffer
          return yield* app
        })

      const authenticated = (
        app: App,
        { isKnown, params, route }: RouteMatch,
        onCaller: (principal: Principal | undefined) => void
      ): App =>
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
          const admission = yield* Effect.result(authentication.admit(request, route))
          onCaller(admission._tag === "Success" ? admission.success?.principal : admission.failure.principal)
          if (admission._tag === "Failure") {
            // A forbidden request has a valid key.
            if (admission.failure.error._tag !== "Forbidden") yield* boundReading(request, options.reading)
            return yield* refused(admission.failure)
          }
          const bodyLimit = Math.max(options.bodyLimit, route.largeBody)
          const strict = Effect.andThen(strictPath(params), strictQuery(requestQuery(request.url), route))
          const checked = isKnown ? withinBodyLimit(Effect.andThen(strict, app), bodyLimit) : app
          const served = checked.pipe(
            Effect.provideService(CurrentPrincipal, admission.success?.principal),
            Effect.provideService(HttpServerRequest.HttpServerRequest, strictBody(asJson(request), scope)),
            Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(bodyLimit))
          )
          const timeout = Duration.sum(options.timeout, Duration.seconds(route.longestWait))
          // The handler of a WebSocket lasts as long as the connection.
          const timed =
            route.isStream && request.headers.upgrade !== undefined
              ? served
              : Effect.timeoutOrElse(served, {
                  duration: timeout,
                  orElse: () =>
                    Effect.fail(
                      new TimedOut({ detail: `no response within ${Duration.toSeconds(timeout)} s` })
                    )
                })
          const response = yield* withErrorBodies(timed)
          if (admission.success !== undefined) {
            const { headers } = admission.success
            // The handler of a stream refuses a ticket of another stream.
            const challenge = response.status === 401 ? { "www-authenticate": "Bearer" } : {}
            return HttpServerResponse.setHeaders(response, { ...headers, ...challenge })
          }
          yield* boundReading(request, options.reading)
          return response
        })

      const cors =
        corsOrigins.length === 0
          ? (app: App): App => app
          : HttpMiddleware.cors({
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
      const forwarded =
        trustedProxies.length === 0
          ? (app: App): App => app
          : HttpMiddleware.xForwardedHeaders({ trustedProxies })

      return (app) =>
        Effect.gen(function* () {
          const started = yield* elapsedMillis
          const received = yield* HttpServerRequest.HttpServerRequest
          const sls =
            options.slsClients === true && isSls(received.headers.accept)
              ? slsTarget(received.url)
              : undefined
          const target =
            sls === undefined || sls.url === received.url ? received : received.modify({ url: sls.url })
          const id = requestIdOf(target.headers["x-request-id"])
          const found = match(target.method, target.url)
          const served = Effect.gen(function* () {
            const request = yield* HttpServerRequest.HttpServerRequest
            let key_id: string | undefined
            const audited = record === undefined ? undefined : yield* beginAudit(found, request, id, nameOf)
            const handled = authenticated(app, found, (principal) => {
              if (principal === undefined) return
              key_id = principal.key_id
              if (audited !== undefined) audited.actor = actorOf(principal)
            })
            return yield* withAudit(cors(withErrorBodies(handled)), audited, record).pipe(
              Effect.map((response) => withStandardHeaders(withReason(response), id, request.url)),
              Effect.map((response) =>
                options.slsClients === true ? varying(response, request.url) : response
              ),
              Effect.map(withRetryAfter),
              Effect.map(ending(request)),
              Effect.tap((response) => recordRequest(request, response, found, { key_id, started })),
              Effect.tap((response) => onResponse(found, response))
            )
          })
          return yield* forwarded(served).pipe(
            Effect.provideService(HttpServerRequest.HttpServerRequest, target),
            Effect.provideService(CurrentSlsRequest, sls?.request),
            Effect.provideService(RequestId, id),
            Effect.annotateLogs({ request_id: id })
          )
        })
    }),
    { global: true }
  )
