import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { ByteSize, Cause, Duration, Effect, Layer } from "effect"
import {
  HttpIncomingMessage,
  HttpRouter,
  HttpServerRequest,
  HttpServerRespondable,
  HttpServerResponse
} from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { DaemonApi } from "../api/DaemonApi.ts"
import { NodeToken } from "../daemon/controlPlane/NodeToken.ts"
import { DaemonAuthorizationLayer, DaemonHandlers, unauthorized } from "../daemon/http.ts"
import { elapsedMillis } from "../domain/elapsed.ts"
import { TimedOut } from "../domain/errors.ts"
import type { Reloadable } from "../domain/Reloadable.ts"
import { RequestId } from "../domain/RequestId.ts"
import { allowedMethods, routerConfig } from "../http/allowedMethods.ts"
import { HttpConnections } from "../http/connectionLimit.ts"
import { pathOf, responseOf, withErrorBody } from "../http/errorResponse.ts"
import { FAILURES_PER_MINUTE, FailedLogins } from "../http/FailedLogins.ts"
import { makeNodeServer, type TlsOptions } from "../http/nodeServer.ts"
import { logRefusedHandshakes } from "../http/refusedHandshakes.ts"
import { requestIdOf } from "../http/requestId.ts"
import { withStandardHeaders } from "../http/standardHeaders.ts"
import { boundReading } from "../http/strangers.ts"
import { strictBody } from "../http/strictBody.ts"
import { AnyFailureLayer, SchemaErrorsLayer } from "./serviceHttp.ts"

/** Longer than the control plane's own timeout. */
const REQUEST_TIMEOUT = Duration.seconds(30)
const SHUTDOWN_TIMEOUT = Duration.seconds(2)
/** Holds a server's definition with all its files, and bounds what a hostile peer can send. */
const BODY_LIMIT = ByteSize.mebibytes(16)

/** The longest message of a console, in bytes. */
const LONGEST_MESSAGE = 64 * 1024

const bearer = /^Bearer +(\S+) *$/i

type App = Effect.Effect<HttpServerResponse.HttpServerResponse, unknown, HttpServerRequest.HttpServerRequest>

/** The pipeline of every call: request id, token, limits, and the one error body. */
const Pipeline = HttpRouter.middleware(
  Effect.gen(function* () {
    const scope = yield* Effect.scope
    const token = yield* NodeToken
    const failedLogins = yield* FailedLogins
    const allowed = allowedMethods(DaemonApi)

    // Always 401: the control plane concludes that its token is outdated. A token has 256 random bits.
    const authorized = (request: HttpServerRequest.HttpServerRequest, app: App): App =>
      token.accepts(bearer.exec(request.headers.authorization ?? "")?.[1] ?? "")
        ? app
        : failedLogins
            .count(request)
            .pipe(
              Effect.andThen(boundReading(request)),
              Effect.andThen(HttpServerRespondable.toResponse(unauthorized)),
              Effect.map(HttpServerResponse.setHeader("www-authenticate", "Bearer"))
            )
    const timed = (request: HttpServerRequest.HttpServerRequest, app: App): App =>
      request.headers.upgrade !== undefined
        ? app
        : Effect.timeoutOrElse(app, {
            duration: REQUEST_TIMEOUT,
            orElse: () =>
              Effect.fail(
                new TimedOut({ detail: `no answer within ${Duration.toSeconds(REQUEST_TIMEOUT)} s` })
              )
          })
    const withErrorBodies = (request: HttpServerRequest.HttpServerRequest, app: App): App =>
      app.pipe(
        Effect.catchCause((cause) =>
          Cause.hasInterruptsOnly(cause)
            ? Effect.interrupt
            : Effect.tap(responseOf(request, Cause.squash(cause), allowed), (response) =>
                response.status === 500 ? Effect.logError("request failed", cause) : Effect.void
              )
        ),
        Effect.flatMap(withErrorBody)
      )

    return (app) =>
      Effect.gen(function* () {
        const started = yield* elapsedMillis
        const request = yield* HttpServerRequest.HttpServerRequest
        const id = requestIdOf(request.headers["x-request-id"])
        return yield* withErrorBodies(request, authorized(request, timed(request, app))).pipe(
          Effect.provideService(HttpIncomingMessage.MaxBodySize, BODY_LIMIT),
          Effect.map((response) => withStandardHeaders(response, id, request.url)),
          Effect.provideService(HttpServerRequest.HttpServerRequest, strictBody(request, scope)),
          // The rest of the request may still arrive.
          Effect.map((response) =>
            response.status === 504 ? HttpServerResponse.setHeader(response, "connection", "close") : response
          ),
          Effect.tap((response) =>
            Effect.flatMap(elapsedMillis, (now) =>
              Effect.logDebug(
                `${request.method} ${pathOf(request.url)} ${response.status} ${now - started} ms`
              )
            )
          ),
          Effect.provideService(RequestId, id),
          Effect.annotateLogs({ request_id: id })
        )
      })
  }),
  { global: true }
)

export interface DaemonHttpOptions {
  readonly host: string
  /** 0: any free port. */
  readonly port: number
  readonly tls?: Reloadable<TlsOptions>
}

/** The HTTP server of a daemon; needs `NodeToken` and `ServedDaemon`. `HttpServer` in the output has the port. */
export const DaemonHttpLayer = (options: DaemonHttpOptions) =>
  Layer.suspend(() => {
    const server = makeNodeServer(options.tls)
    return HttpRouter.serve(
      Layer.merge(
        HttpApiBuilder.layer(DaemonApi).pipe(
          Layer.provide(DaemonHandlers),
          Layer.provide([DaemonAuthorizationLayer, SchemaErrorsLayer, AnyFailureLayer])
        ),
        // A control plane may use a token a few times before the daemon has received it.
        Pipeline.pipe(Layer.provide(FailedLogins.layer({ tolerated: FAILURES_PER_MINUTE })))
      ),
      { disableLogger: true, disableListenLog: true }
    ).pipe(
      Layer.provide(Layer.succeed(HttpRouter.RouterConfig, routerConfig)),
      Layer.provideMerge(
        NodeHttpServer.layer(() => server, {
          host: options.host,
          port: options.port,
          gracefulShutdownTimeout: SHUTDOWN_TIMEOUT,
          // A message is one line of a console; the default is 100 MiB.
          websocket: { maxPayload: LONGEST_MESSAGE }
        })
      ),
      Layer.provide(HttpConnections.layer(server)),
      Layer.merge(Layer.effectDiscard(logRefusedHandshakes(server)))
    )
  })
