import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Duration, Effect, Layer } from "effect"
import { HttpRouter } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { DaemonApi } from "../api/DaemonApi.ts"
import { NodeToken } from "../daemon/controlPlane/NodeToken.ts"
import { DaemonAuthorizationLayer, DaemonHandlers, unauthorized } from "../daemon/http.ts"
import type { Reloadable } from "../domain/Reloadable.ts"
import { Authentication } from "../http/authenticate.ts"
import { HttpConnections } from "../http/connectionLimit.ts"
import { FAILURES_PER_MINUTE, FailedLogins } from "../http/FailedLogins.ts"
import { AnyFailureLayer, SchemaErrorsLayer } from "../http/failures.ts"
import { makeNodeServer, type TlsOptions } from "../http/nodeServer.ts"
import { Pipeline } from "../http/Pipeline.ts"
import { declaredRoutes, makeRouteTable, routerConfig } from "../http/RouteTable.ts"
import { logRefusedHandshakes } from "../http/refusedHandshakes.ts"

/** Longer than the control plane's own timeout. */
const REQUEST_TIMEOUT = Duration.seconds(30)
const SHUTDOWN_TIMEOUT = Duration.seconds(2)
/** Holds a server's definition with all its files, and bounds what a hostile peer can send. */
const BODY_LIMIT = 16 * 1024 * 1024

/** The longest message of a console, in bytes. */
const LONGEST_MESSAGE = 64 * 1024

const bearer = /^Bearer +(\S+) *$/i

const daemonRoutes = makeRouteTable({ routes: declaredRoutes(DaemonApi, { strictQuery: false }) })

/**
 * Admits a request with the token, whatever its path. A refusal is always 401, so that the control plane learns that its
 * token is outdated; a token has 256 random bits.
 */
const DaemonAuthentication = Layer.effect(
  Authentication,
  Effect.gen(function* () {
    const token = yield* NodeToken
    const failedLogins = yield* FailedLogins
    return Authentication.of({
      admit: (request) =>
        token.accepts(bearer.exec(request.headers.authorization ?? "")?.[1] ?? "")
          ? Effect.succeed({ headers: {} })
          : Effect.andThen(
              failedLogins.count(request),
              Effect.fail({ error: unauthorized, headers: { "www-authenticate": "Bearer" } })
            )
    })
  })
  // A control plane may use a token a few times before the daemon has received it.
).pipe(Layer.provide(FailedLogins.layer({ tolerated: FAILURES_PER_MINUTE })))

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
        Pipeline({ routes: daemonRoutes, bodyLimit: BODY_LIMIT, timeout: REQUEST_TIMEOUT }).pipe(
          Layer.provide(DaemonAuthentication)
        )
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
