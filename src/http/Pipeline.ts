import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import {
  ByteSize,
  Cause,
  Clock,
  Context,
  Duration,
  Effect,
  type Fiber,
  Option,
  References,
  type Scope
} from "effect"
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
import { LargeAnswers, tooManyUnread } from "../api/LargeAnswers.ts"
import { CurrentPrincipal } from "../api/Principal.ts"
import { CurrentSlsRequest, isSls, slsTarget } from "../api/sls.ts"
import { AuditRecorder, CurrentAudit, ServerNameOf } from "../domain/AuditedRequest.ts"
import { elapsedMillisOf } from "../domain/elapsed.ts"
import { TimedOut } from "../domain/errors.ts"
import { RequestId } from "../domain/RequestId.ts"
import { announcedBytes, discardBody, makeArrivingBodies } from "./arrivingBodies.ts"
import { beginAudit, CLIENT_CLOSED } from "./auditing.ts"
import { type Admission, Authentication, type Caller, callerOf, callerOfRefusal } from "./authenticate.ts"
import { type Deadlines, makeDeadlines } from "./deadlines.ts"
import { errorResponse, responseOf, tooLarge, withErrorBody } from "./errorResponse.ts"
import { recordRequest } from "./metrics.ts"
import { makePreflight } from "./preflight.ts"
import type { Route, RouteMatch, RouteTable } from "./RouteTable.ts"
import { requestQuery } from "./requestPath.ts"
import { requestIdOf, withFinalHeaders } from "./responseHeaders.ts"
import { Started } from "./Started.ts"
import { boundReading } from "./strangers.ts"
import { hasBody, strictBody, strictPath, strictQuery } from "./strictBody.ts"

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

/** A request while the pipeline processes it. */
interface Exchange {
  readonly fiber: Fiber.Fiber<unknown, unknown>
  readonly request: HttpServerRequest.HttpServerRequest
  readonly found: RouteMatch
  readonly id: string
  /** Time of {@link elapsedMillisOf}. */
  readonly started: number
}

/** Declares a body as JSON, regardless of its `Content-Type` (spec 1.2). */
const asJson = (request: HttpServerRequest.HttpServerRequest) => {
  const type = request.headers["content-type"]
  return type === undefined || type === "application/json"
    ? request
    : request.modify({ headers: Headers.set(request.headers, "content-type", "application/json") })
}

/** Headers of which a proxy may read another one than this service. */
const single = ["host", "authorization"]

/** A host and a port; a list, a path or a user is none (RFC 9110, section 7.2). */
const hostPattern = /^[^\s,/?#@\\]*$/

/** Returns why a head is a bad request (RFC 9112, section 3.2). */
const badHead = (request: HttpServerRequest.HttpServerRequest): string | undefined => {
  const { httpVersion, rawHeaders } = NodeHttpServerRequest.toIncomingMessage(request)
  const seen = new Set<string>()
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? ""
    if (name.length !== 4 && name.length !== 13) continue
    const lower = name.toLowerCase()
    if (!single.includes(lower)) continue
    if (seen.has(lower)) return `the request has several ${name} headers`
    if (lower === "host" && !hostPattern.test(rawHeaders[at + 1] ?? "")) return "the Host header is invalid"
    seen.add(lower)
  }
  return httpVersion === "1.1" && !seen.has("host") ? "the Host header is missing" : undefined
}

const unreadResponse = (id: string) =>
  errorResponse(id, 503, tooManyUnread.detail, tooManyUnread.hint, { "retry-after": "5" })

/** The peer has shown no key yet. */
const stranger: Caller = { principal: undefined, headers: undefined, isStranger: true }
/** The peer is a browser that asks for the permission of a page, or its key could not be checked. */
const unknown: Caller = { ...stranger, isStranger: false }

/**
 * Runs a handler in a fiber of its own, which a closed connection does not interrupt. A handler that completes at once
 * needs no deadline.
 *
 * @param seconds for the handler
 * @param scope   owns the fiber
 */
const timed = (app: App, seconds: number, scope: Scope.Scope, deadlines: Deadlines): App =>
  Effect.flatMap(
    Effect.forkIn(app, scope, { startImmediately: true }),
    (handler) =>
      handler.pollUnsafe() ??
      deadlines.join(
        handler,
        seconds * 1000,
        Effect.suspend(() => new TimedOut({ detail: `no response within ${seconds} s` }))
      )
  )

/** Adds a service to the context of a request; the request restores the context of its fiber at its end. */
const put = <I, S>({ fiber }: Pick<Exchange, "fiber">, key: Context.Key<I, S>, value: S): void =>
  fiber.setContext(Context.add(fiber.context, key, value))

/**
 * Processes every request of the service and of a daemon in this order: request id, CORS, authentication and scope,
 * route, limits of time and body, query. Then it adds the error body, the headers, the log line and the metrics.
 */
export const Pipeline = (options: PipelineOptions) =>
  HttpRouter.middleware(
    Effect.gen(function* () {
      const scope = yield* Effect.scope
      const authentication = yield* Authentication
      const record = yield* AuditRecorder
      const nameOf = yield* ServerNameOf
      const startup = yield* Started
      const answers = yield* LargeAnswers
      const { corsOrigins = [], onResponse = () => Effect.void, trustedProxies = [] } = options
      const { allowed, match } = options.routes
      const preflight = makePreflight(corsOrigins)
      const isVarying = options.slsClients === true
      const timeout = Duration.toSeconds(options.timeout)
      const bodies = makeArrivingBodies()
      const deadlines = yield* makeDeadlines

      const begin = (fiber: Exchange["fiber"]): Exchange => {
        const started = elapsedMillisOf(fiber.getRef(Clock.Clock))
        const received = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
        const sls = isVarying && isSls(received.headers.accept) ? slsTarget(received.url) : undefined
        const isRewritten = sls !== undefined && sls.url !== received.url
        const request = isRewritten ? received.modify({ url: sls.url }) : received
        const id = requestIdOf(request.headers["x-request-id"])
        const exchange = { fiber, request, found: match(request.method, request.url), id, started }
        if (isRewritten) put(exchange, HttpServerRequest.HttpServerRequest, request)
        if (sls !== undefined) put(exchange, CurrentSlsRequest, sls.request)
        put(exchange, RequestId, id)
        const annotations = fiber.getRef(References.CurrentLogAnnotations)
        put(exchange, References.CurrentLogAnnotations, { ...annotations, request_id: id })
        return exchange
      }

      const failed = ({ request }: Exchange, cause: Cause.Cause<unknown>): App => {
        if (Cause.hasInterruptsOnly(cause)) return Effect.interrupt
        return Effect.tap(responseOf(request, Cause.squash(cause), allowed), (response) =>
          response.status === 500 ? Effect.logError("request failed", cause) : Effect.void
        )
      }

      /** Runs a handler and completes its response: error body, headers, audit entry, log line and metrics. */
      const responded = (exchange: Exchange, caller: Caller, handler: App): App => {
        const { fiber, found, id, request, started } = exchange
        const { principal } = caller
        const audited = record === undefined ? undefined : beginAudit(exchange, principal, nameOf)
        if (principal !== undefined) put(exchange, CurrentPrincipal, principal)
        if (audited !== undefined) {
          put(exchange, CurrentAudit, audited)
          put(exchange, AuditRecorder, record)
        }
        const recorded = (status: number) =>
          audited === undefined || record === undefined ? Effect.void : record(audited, status)
        const complete = (handled: HttpServerResponse.HttpServerResponse): App => {
          if (caller.isStranger) boundReading(request, options.reading)
          const left = answers.begin(request, handled, principal) ? handled : unreadResponse(id)
          const response = withFinalHeaders(withErrorBody(left, id), caller, { request, id, isVarying })
          return Effect.flatMapEager(recorded(response.status), () =>
            Effect.flatMapEager(
              recordRequest(fiber, { request, response, found, key_id: principal?.key_id, started }),
              () => Effect.flatMapEager(onResponse(found, response), () => Effect.succeed(response))
            )
          )
        }
        const completed = Effect.matchCauseEffect(handler, {
          onSuccess: complete,
          onFailure: (cause) => Effect.flatMap(failed(exchange, cause), complete)
        })
        return audited === undefined
          ? completed
          : Effect.onInterrupt(completed, () => recorded(CLIENT_CLOSED))
      }

      /** Runs a handler as the caller that the key has now; the body may have arrived long after its head. */
      const confirmed = (app: App, request: Exchange["request"], route: Route): App =>
        Effect.matchEffect(authentication.confirm(request, route), {
          onSuccess: (principal) => Effect.provideService(app, CurrentPrincipal, principal),
          onFailure: ({ error, headers }) =>
            Effect.map(HttpServerRespondable.toResponse(error), HttpServerResponse.setHeaders(headers))
        })

      /**
       * Checks the size of the body, the path and the query. 413 comes before the body is decoded (spec 1.4), also on a route without a body. A handler that reads the body begins when the body has
       * arrived, and uses the bytes that were read.
       */
      const checked = (
        app: App,
        request: Exchange["request"],
        { params, route }: RouteMatch,
        limit: number
      ): App => {
        if (announcedBytes(request, limit) > limit) return tooLarge
        const strict = Effect.flatMapEager(strictPath(request.url, params), () =>
          strictQuery(requestQuery(request.url), route)
        )
        const handled = Effect.flatMapEager(strict, () => app)
        if (!hasBody(request)) return handled
        if (route.readsBody)
          return Effect.flatMap(request.arrayBuffer, () => confirmed(handled, request, route))
        return request.headers["transfer-encoding"] === undefined
          ? handled
          : Effect.andThen(discardBody(request, limit), handled)
      }

      const admitted = (app: App, exchange: Exchange, admission: Admission | undefined): App => {
        const { found } = exchange
        const { isKnown, route } = found
        const limit = Math.max(options.bodyLimit, route.largeBody)
        const sender = admission?.principal?.key_id ?? ""
        const request = strictBody(asJson(exchange.request), scope, (read) =>
          bodies.counted(sender, announcedBytes(exchange.request, limit), read)
        )
        // Each service that a request adds costs: beyond some number, the whole context is copied.
        if (request !== exchange.request) put(exchange, HttpServerRequest.HttpServerRequest, request)
        if (hasBody(request)) put(exchange, HttpIncomingMessage.MaxBodySize, ByteSize.bytes(limit))
        const begun = route.answersEarly || startup.isDone() ? app : Effect.andThen(startup.done, app)
        const handler = isKnown ? checked(begun, request, found, limit) : begun
        // The handler of a WebSocket lasts as long as the connection.
        const lasts = route.isStream && request.headers.upgrade !== undefined
        const seconds = timeout + route.longestWait
        return responded(
          exchange,
          callerOf(admission),
          lasts ? handler : timed(handler, seconds, scope, deadlines)
        )
      }

      const authenticated = (app: App, exchange: Exchange): App => {
        const bad = badHead(exchange.request)
        return bad !== undefined
          ? responded(
              exchange,
              stranger,
              Effect.succeed(errorResponse(exchange.id, 400, bad, "Send a well-formed HTTP/1.1 request."))
            )
          : Effect.matchCauseEffectEager(authentication.admit(exchange.request, exchange.found.route), {
              onSuccess: (admission) => admitted(app, exchange, admission),
              onFailure: (cause) => {
                const refusal = Option.getOrUndefined(Cause.findErrorOption(cause))
                return refusal === undefined
                  ? responded(exchange, unknown, Effect.failCause(cause))
                  : responded(
                      exchange,
                      callerOfRefusal(refusal),
                      HttpServerRespondable.toResponse(refusal.error)
                    )
              }
            })
      }

      const forwarded =
        trustedProxies.length === 0
          ? (app: App): App => app
          : HttpMiddleware.xForwardedHeaders({ trustedProxies })

      return (app) =>
        forwarded(
          Effect.withFiber((fiber): App => {
            const exchange = begin(fiber)
            return Effect.flatMapEager(preflight, (permission) =>
              permission === undefined
                ? authenticated(app, exchange)
                : responded(exchange, unknown, Effect.succeed(permission))
            )
          })
        )
    }),
    { global: true }
  )
