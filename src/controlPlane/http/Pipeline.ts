import {
  ByteSize,
  Cause,
  Clock,
  Context,
  Duration,
  Effect,
  Fiber,
  Layer,
  Option,
  References,
  type Scope,
  Tracer
} from "effect"
import {
  HttpIncomingMessage,
  HttpMiddleware,
  HttpRouter,
  HttpServerError,
  HttpServerRequest,
  HttpServerResponse
} from "effect/http"
import type { IpNetwork } from "effect/net"
import { RequestId } from "../../contract/domain/ApiError.ts"
import {
  AuditedRequest,
  AuditRecorder,
  CurrentAudit,
  ServerNameOf
} from "../../contract/domain/AuditedRequest.ts"
import { MethodNotAllowed, NotFound, TimedOut, type Unavailable } from "../../contract/domain/errors.ts"
import { auditId } from "../../contract/domain/idBytes.ts"
import { elapsedMillisOf } from "../../shared/work/elapsed.ts"
import { announcedBytes, discardBody, makeArrivingBodies } from "./arrivingBodies.ts"
import { Authentication, type Caller, type Refusal, stranger } from "./authenticate.ts"
import { Started } from "./GracefulStop.ts"
import { LargeAnswers, tooManyInProgress, tooManyUnread } from "./LargeAnswers.ts"
import { allowSilence, boundReading, clientOf } from "./node/clients.ts"
import { CurrentPrincipal } from "./Principal.ts"
import { recordRequest } from "./requestMetrics.ts"
import { isDryRun, pathOf, requestQuery } from "./requestUrl.ts"
import {
  bodyTooLarge,
  makePreflight,
  requestIdOf,
  toResponse,
  withErrorBody,
  withFinalHeaders
} from "./responseHeaders.ts"
import {
  Asked,
  type Missed,
  makePolicies,
  missedBy,
  type Route,
  type RouteMatch,
  type routesOf
} from "./routes.ts"
import { CurrentSlsRequest, isSls, slsTarget } from "./sls.ts"
import { asJson, hasBody, strictBody, strictHead, strictPath, strictQuery } from "./strictRequest.ts"
import { closeUnlessArrived, makeTransfers, STALLED } from "./transfers.ts"

/** nginx: the caller closed the connection before the response. */
const CLIENT_CLOSED = 499

/** Seconds in which a response is written after the last moment of its handler. */
const LINGER = 10

export interface PipelineOptions {
  /** The routes of the APIs; all others are pages. */
  readonly declared: ReturnType<typeof routesOf>
  /** Bytes. */
  readonly bodyLimit: number
  /** Values in the arrays and objects of a body; default: any number. */
  readonly mostValues?: number
  readonly timeout: Duration.Duration
  /** Origins of browsers that may call; default: none. */
  readonly corsOrigins?: ReadonlyArray<string>
  readonly trustedProxies?: ReadonlyArray<IpNetwork.IpNetwork>
  /** Time in which a peer without a key reads a response; default: 60 s. */
  readonly reading?: Duration.Duration
  /** Time without a byte after which the transfer of a file ends; default: 60 s. */
  readonly stalled?: Duration.Duration
  /** Whether requests of SLS's own clients are treated as such; default: no. */
  readonly slsClients?: boolean
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

/** The caller is a browser that asks for the permission of a page, or its key could not be checked. */
const unknown: Caller = { ...stranger, isStranger: false }

const within = (app: App, seconds: number, ended: Effect.Effect<void> = Effect.void): App =>
  Effect.timeoutOrElse(app, {
    duration: Duration.seconds(seconds),
    orElse: () => Effect.andThen(ended, new TimedOut({ detail: `no response within ${seconds} s` }))
  })

/** Runs a handler in a fiber of `scope`, which a closed connection does not interrupt, for at most `seconds`. */
const timed = (app: App, seconds: number, scope: Scope.Scope): App =>
  Effect.flatMap(
    Effect.forkIn(app, scope, { startImmediately: true }),
    (handler) => handler.pollUnsafe() ?? within(Fiber.join(handler), seconds, Fiber.interrupt(handler))
  )

/** Adds a service to the context of a request; the request restores the context of its fiber at its end. */
const put = <I, S>({ fiber }: Pick<Exchange, "fiber">, key: Context.Key<I, S>, value: S): void =>
  fiber.setContext(Context.add(fiber.context, key, value))

/** Begins the audit entry of a request, if one is due: its route is audited, and the caller has a valid key. */
const beginAudit = (
  { fiber, found: { isKnown, params, route }, id, request }: Exchange,
  { principal }: Caller,
  nameOf: (id: string) => string | undefined
): AuditedRequest | undefined => {
  const { audited: action, right, status } = route
  if (action === undefined || !isKnown || principal === undefined) return undefined
  const { key_id, name, scope } = principal
  const now = fiber.getRef(Clock.Clock).currentTimeMillisUnsafe()
  const noun = action.slice(0, action.indexOf("."))
  // The object of an action on files is their server.
  const kind = noun === "file" || noun === "sftp" ? "server" : noun
  return new AuditedRequest({
    begin: { id: auditId(now), at: new Date(now).toISOString(), client: clientOf(request), request_id: id },
    action,
    kind,
    id: params[kind],
    success: status,
    actor: { key_id, name, scope },
    isShareable: right === "read" || right === "browse" || action.endsWith(".read"),
    ...(kind === "server" ? { nameOf } : {})
  })
}

/** Returns the response to a request that no route takes. */
const refused = ({ allowed }: Missed, { method, url }: Exchange["request"]): App => {
  const path = pathOf(url)
  if (allowed.length === 0) {
    const hint = "Check the path against /docs."
    return toResponse(new NotFound({ detail: `no route for ${method} ${path}`, hint }))
  }
  const allow = allowed.join(", ")
  if (method === "OPTIONS")
    return Effect.succeed(HttpServerResponse.empty({ status: 204, headers: { allow } }))
  return Effect.map(
    toResponse(
      new MethodNotAllowed({ detail: `${method} is not allowed on ${path}`, hint: `Use ${allow}.` })
    ),
    HttpServerResponse.setHeader("allow", allow)
  )
}

/** Rewrites a request of SLS's own client. */
const rewriteSls = (fiber: Exchange["fiber"]) => {
  const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
  if (!isSls(request.headers.accept)) return
  const sls = slsTarget(request.url)
  put({ fiber }, CurrentSlsRequest, sls.request)
  if (sls.url !== request.url)
    put({ fiber }, HttpServerRequest.HttpServerRequest, request.modify({ url: sls.url }))
}

const nameSpan = ({ fiber, found, request }: Exchange) => {
  const span = Context.getOrUndefined(fiber.context, Tracer.ParentSpan)
  if (span?._tag === "Span" && span.sampled)
    Object.assign(span, { name: `${request.method} ${found.route.path}`.trimEnd() })
}

const refusedNow = (error: Unavailable): App =>
  Effect.map(toResponse(error), HttpServerResponse.setHeader("retry-after", "5"))

/** Begins the exchange of the current request: its id is in the context and in the logs. */
const begin = (fiber: Exchange["fiber"], found: RouteMatch): Exchange => {
  const started = elapsedMillisOf(fiber.getRef(Clock.Clock))
  const request = Context.getUnsafe(fiber.context, HttpServerRequest.HttpServerRequest)
  const id = requestIdOf(request.headers["x-request-id"])
  const exchange = { fiber, request, found, id, started }
  put(exchange, RequestId, id)
  const annotations = fiber.getRef(References.CurrentLogAnnotations)
  put(exchange, References.CurrentLogAnnotations, { ...annotations, request_id: id })
  nameSpan(exchange)
  return exchange
}

const failed = (cause: Cause.Cause<unknown>): App => {
  if (Cause.hasInterruptsOnly(cause)) return Effect.interrupt
  return Effect.tap(toResponse(Cause.squash(cause)), (response) =>
    response.status === 500 ? Effect.logError("request failed", cause) : Effect.void
  )
}

/** Returns what completes the response of a handler: error body, headers, audit entry, log line and metrics. */
const makeResponded = Effect.fnUntraced(function* (options: PipelineOptions) {
  const record = yield* AuditRecorder
  const nameOf = yield* ServerNameOf
  const answers = yield* LargeAnswers
  const {
    onResponse = () => Effect.void,
    reading,
    slsClients: isVarying = false,
    stalled = STALLED
  } = options
  return (exchange: Exchange, caller: Caller, handler: App): App => {
    const { fiber, found, id, request } = exchange
    const { principal } = caller
    const audited = record === undefined ? undefined : beginAudit(exchange, caller, nameOf)
    if (principal !== undefined) put(exchange, CurrentPrincipal, principal)
    if (audited !== undefined) {
      put(exchange, CurrentAudit, audited)
      put(exchange, AuditRecorder, record)
    }
    const recorded = (status: number) =>
      audited === undefined || record === undefined ? Effect.void : record(audited, status)
    const finished = (handled: HttpServerResponse.HttpServerResponse): App => {
      const headed = withFinalHeaders(withErrorBody(handled, id), caller, {
        request,
        id,
        isVarying,
        ofRoute: found.route.responseHeaders
      })
      const response = found.route.streamsBody === true ? closeUnlessArrived(request, headed) : headed
      return recorded(response.status).pipe(
        Effect.flatMapEager(() => recordRequest(fiber, { ...exchange, response, key_id: principal?.key_id })),
        Effect.flatMapEager(() => onResponse(found, response)),
        Effect.mapEager(() => response)
      )
    }
    const complete = (handled: HttpServerResponse.HttpServerResponse): App => {
      if (caller.isStranger) boundReading(request, reading)
      const patience = found.route.transfers === true ? stalled : undefined
      return found.route.isStream === true || answers.begin(request, handled, principal, patience)
        ? finished(handled)
        : Effect.flatMap(refusedNow(tooManyUnread), finished)
    }
    const completed = Effect.matchCauseEffect(handler, {
      onSuccess: complete,
      onFailure: (cause) => Effect.flatMap(failed(cause), complete)
    })
    return audited === undefined ? completed : Effect.onInterrupt(completed, () => recorded(CLIENT_CLOSED))
  }
})

/** Returns what runs the handler of an admitted request: bounds of its body, strict input, and a deadline. */
const makeHandled = Effect.fnUntraced(function* (options: PipelineOptions) {
  const scope = yield* Effect.scope
  const authentication = yield* Authentication
  const startup = yield* Started
  const timeout = Duration.toSeconds(options.timeout)
  const bodies = makeArrivingBodies()
  const transfers = yield* makeTransfers(options.stalled)

  /** Runs a handler as the caller that the key has now; the body may have arrived long after its head. */
  const asCallerNow = (app: App, request: Exchange["request"], route: Route): App =>
    Effect.matchEffect(authentication.authorize(request, route), {
      onSuccess: ({ principal }) => Effect.provideService(app, CurrentPrincipal, principal),
      onFailure: ({ caller, error }) =>
        Effect.map(toResponse(error), HttpServerResponse.setHeaders(caller.headers))
    })

  /** Checks the path and the query. */
  const strict = (app: App, request: Exchange["request"], { params, route }: RouteMatch): App =>
    strictPath(request.url, params).pipe(
      Effect.flatMapEager(() => strictQuery(requestQuery(request.url), route)),
      Effect.flatMapEager(() => app)
    )

  /**
   * Checks the size of the body, the path and the query. 413 comes before the body is decoded (spec 1.4), also on a
   * route without a body; a handler that reads the body begins when the body has arrived.
   */
  const checked = (app: App, request: Exchange["request"], found: RouteMatch, limit: number): App => {
    const { route } = found
    if (announcedBytes(request, limit) > limit) return toResponse(bodyTooLarge)
    const handled = strict(app, request, found)
    if (!hasBody(request)) return handled
    if (route.readsBody)
      return Effect.flatMap(request.arrayBuffer, () => asCallerNow(handled, request, route))
    return request.headers["transfer-encoding"] === undefined
      ? handled
      : Effect.andThen(discardBody(request, limit), handled)
  }

  const whole = (exchange: Exchange, caller: Caller, begun: App): App => {
    const { found } = exchange
    const { isStream, largeBody = 0, longestWait = 0 } = found.route
    const { mostValues = options.mostValues ?? Number.POSITIVE_INFINITY } = found.route
    const limit = Math.max(options.bodyLimit, largeBody)
    const sender = caller.principal?.key_id ?? ""
    const request = strictBody(asJson(exchange.request), scope, mostValues, (read) =>
      bodies.counted(sender, announcedBytes(exchange.request, limit), read)
    )
    if (request !== exchange.request) put(exchange, HttpServerRequest.HttpServerRequest, request)
    if (hasBody(request)) put(exchange, HttpIncomingMessage.MaxBodySize, ByteSize.bytes(limit))
    const handler = found.isKnown ? checked(begun, request, found, limit) : begun
    // The handler of a WebSocket lasts as long as the connection.
    const lasts = isStream === true && request.headers.upgrade !== undefined
    if (longestWait > 0) allowSilence(request, timeout + longestWait + LINGER)
    if (lasts) return handler
    // A dry run changes nothing, so a closed connection ends it.
    return isDryRun(request.url)
      ? within(handler, timeout + longestWait)
      : timed(handler, timeout + longestWait, scope)
  }

  return (exchange: Exchange, caller: Caller, app: App): App => {
    const { found, request } = exchange
    const { answersEarly, streamsBody, transfers: isTransfer } = found.route
    const begun = answersEarly === true || startup.isDone() ? app : Effect.andThen(startup.done, app)
    if (!found.isKnown || isTransfer !== true) return whole(exchange, caller, begun)
    if (streamsBody === true)
      return transfers.receiving(request, caller.principal, strict(begun, request, found))
    return Effect.flatMap(whole(exchange, caller, begun), (response) =>
      transfers.sending(request, caller.principal, response)
    )
  }
})

const makeServe = Effect.fnUntraced(function* (options: PipelineOptions) {
  const authentication = yield* Authentication
  const answers = yield* LargeAnswers
  const responded = yield* makeResponded(options)
  const handled = yield* makeHandled(options)
  const preflight = makePreflight(options.corsOrigins ?? [])

  const admission = ({ found: { route }, request }: Exchange): Effect.Effect<Caller, Refusal> =>
    strictHead(request).pipe(
      Effect.mapErrorEager((error): Refusal => ({ error, caller: stranger })),
      Effect.flatMapEager(() => authentication.authorize(request, route)),
      Effect.flatMapEager((caller) => authentication.limited(caller, route))
    )

  return (found: RouteMatch, app: App): App =>
    Effect.withFiber((fiber) => {
      const exchange = begin(fiber, found)
      return Effect.flatMapEager(preflight, (permission) => {
        if (permission !== undefined) return responded(exchange, unknown, Effect.succeed(permission))
        return Effect.matchCauseEffectEager(admission(exchange), {
          onSuccess: (caller) =>
            responded(
              exchange,
              caller,
              found.route.isStream === true || answers.admit(exchange.request, caller.principal)
                ? handled(exchange, caller, app)
                : refusedNow(tooManyInProgress)
            ),
          onFailure: (cause) => {
            const refusal = Option.getOrUndefined(Cause.findErrorOption(cause))
            return refusal === undefined
              ? responded(exchange, unknown, Effect.failCause(cause))
              : responded(exchange, refusal.caller, toResponse(refusal.error))
          }
        })
      })
    })
})

/** Serves routes with the checks around each; requests that no route takes pass them too. */
export const withPipeline =
  (options: PipelineOptions) =>
  <E, R>(routes: Layer.Layer<never, E, R>) =>
    Layer.unwrap(
      Effect.gen(function* () {
        const serve = yield* makeServe(options)
        const policyOf = makePolicies(options.declared)
        const { trustedProxies = [] } = options
        const perRoute = HttpRouter.middleware((app) =>
          Effect.withFiber((fiber): App => {
            const { params, route } = Context.getUnsafe(fiber.context, HttpRouter.RouteContext)
            const found = { route: policyOf(route.method, route.path), params, isKnown: true }
            return fiber.getRef(Asked) ? Effect.fail(found) : serve(found, app)
          })
        )
        const isMiss = (failure: unknown) =>
          HttpServerError.isHttpServerError(failure) && failure.reason._tag === "RouteNotFound"
        const aroundAll = (app: App): App => {
          const routed = Effect.catchIf(app, isMiss, () =>
            Effect.flatMap(missedBy(app), (missed) =>
              serve(
                missed.found,
                Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => refused(missed, request))
              )
            )
          )
          return options.slsClients === true
            ? Effect.withFiber((fiber) => {
                rewriteSls(fiber)
                return routed
              })
            : routed
        }
        return Layer.mergeAll(
          Layer.provide(routes, perRoute.layer),
          HttpRouter.middleware(
            (app) =>
              trustedProxies.length === 0
                ? aroundAll(app)
                : HttpMiddleware.xForwardedHeaders({ trustedProxies })(aroundAll(app)),
            { global: true }
          )
        )
      })
    )
