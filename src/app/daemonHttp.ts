import { createHash, timingSafeEqual } from "node:crypto"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Duration, Effect, Layer, Metric, Option, Redacted } from "effect"
import { HttpRouter, type HttpServerRequest } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { ServerStatus } from "../contract/domain/ServerStatus.ts"
import { DaemonApi } from "../contract/nodeApi/DaemonApi.ts"
import { FailuresLayer } from "../controlPlane/http/apiMiddleware.ts"
import { Authentication, type Caller, type Refusal, stranger } from "../controlPlane/http/authenticate.ts"
import { FAILURES_PER_MINUTE, FailedLogins } from "../controlPlane/http/FailedLogins.ts"
import { HttpConnections } from "../controlPlane/http/node/connectionLimit.ts"
import {
  logRefusedHandshakes,
  makeNodeServer,
  type TlsOptions
} from "../controlPlane/http/node/nodeServer.ts"
import { withPipeline } from "../controlPlane/http/Pipeline.ts"
import { metricsPage } from "../controlPlane/http/requestMetrics.ts"
import { type Route, routerConfig, routesOf } from "../controlPlane/http/routes.ts"
import { NodeBackupsHandlers, NodeFilesHandlers, NodeUploadsHandlers } from "../daemon/filesHttp.ts"
import { DaemonAuthorizationLayer, DaemonHandlers, ServedDaemon, unauthorized } from "../daemon/http.ts"
import { NodeToken } from "../daemon/uplink/ControlPlaneClient.ts"
import { leanRequests } from "../shared/net/requestServices.ts"
import { daemonReports, daemonServers } from "../shared/observability/metrics.ts"
import { makeObserveProcess, makeSeries, observeForExporter } from "../shared/observability/observations.ts"
import type { Reloadable } from "../shared/work/Reloadable.ts"
import { version } from "./version.ts"

/** Longer than the control plane's own timeout. */
const REQUEST_TIMEOUT = Duration.seconds(30)
const SHUTDOWN_TIMEOUT = Duration.seconds(2)
/** Holds a server's definition with all its files, and bounds what a hostile peer can send. */
const BODY_LIMIT = 16 * 1024 * 1024

const LONGEST_MESSAGE = 64 * 1024

const bearer = /^Bearer +(\S+) *$/i

const METRICS = "/metrics"

const digest = (text: string) => createHash("sha256").update(text).digest()

/** Returns a comparison with a key in constant time; without a key it refuses every text. */
const acceptsKey = (key: Redacted.Redacted<string> | undefined) => {
  const text = key === undefined ? "" : Redacted.value(key)
  const expected = digest(text)
  return (given: string) => text !== "" && timingSafeEqual(digest(given), expected)
}

/** `GET /metrics`: the servers of the node, and the figures of this process. */
const MetricsRoute = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const served = yield* ServedDaemon
    const observeProcess = yield* makeObserveProcess(version)
    const setSeries = makeSeries()
    const observeServers = Effect.gen(function* () {
      // The routes start before the daemon is ready.
      const servers = Option.getOrElse(yield* Effect.timeoutOption(served.servers, "1 second"), () => [])
      const counts = Map.groupBy(servers, ({ status }) => status)
      yield* setSeries(
        ServerStatus.literals.map((status) => ({
          gauge: daemonServers,
          labels: { status },
          value: counts.get(status)?.length ?? 0
        }))
      )
      yield* Metric.update(
        daemonReports,
        servers.reduce((sum, { unsent_reports }) => sum + unsent_reports, 0)
      )
    })
    const observe = Effect.andThen(observeServers, observeProcess)
    yield* observeForExporter(observe)
    yield* router.add("GET", METRICS, Effect.andThen(observe, metricsPage))
  })
)

/** Admits requests with the token, or the key for `/metrics`. Always refuses by 401, the sign of an outdated token. */
const DaemonAuthentication = (metricsKey: Redacted.Redacted<string> | undefined) =>
  Layer.effect(
    Authentication,
    Effect.gen(function* () {
      const token = yield* NodeToken
      const failedLogins = yield* FailedLogins
      const opensMetrics = acceptsKey(metricsKey)
      const authorize = (
        request: HttpServerRequest.HttpServerRequest,
        { path }: Route
      ): Effect.Effect<Caller, Refusal> => {
        const given = bearer.exec(request.headers.authorization ?? "")?.[1] ?? ""
        return token.accepts(given) || (path === METRICS && opensMetrics(given))
          ? Effect.succeed({ headers: {}, isStranger: false })
          : Effect.andThen(
              failedLogins.count(request),
              Effect.fail({ error: unauthorized, caller: stranger })
            )
      }
      return Authentication.of({ authorize, limited: Effect.succeed })
    })
    // A control plane may use a token a few times before the daemon has received it.
  ).pipe(Layer.provide(FailedLogins.layer({ tolerated: FAILURES_PER_MINUTE })))

export interface DaemonHttpOptions {
  readonly host: string
  readonly port: number
  /** A socket that listens already, in place of host and port. */
  readonly fd?: number
  readonly tls?: Reloadable<TlsOptions>
  readonly metricsKey?: Redacted.Redacted<string>
}

/** The HTTP server of a daemon; needs `NodeToken` and `ServedDaemon`. `HttpServer` in the output has the port. */
export const DaemonHttpLayer = (options: DaemonHttpOptions) =>
  Layer.suspend(() => {
    const server = makeNodeServer(options.tls)
    return HttpRouter.serve(
      Layer.mergeAll(
        MetricsRoute,
        HttpApiBuilder.layer(DaemonApi).pipe(
          Layer.provide([DaemonHandlers, NodeFilesHandlers, NodeBackupsHandlers, NodeUploadsHandlers]),
          Layer.provide([DaemonAuthorizationLayer, FailuresLayer])
        )
      ).pipe(
        withPipeline({ declared: routesOf(DaemonApi), bodyLimit: BODY_LIMIT, timeout: REQUEST_TIMEOUT }),
        Layer.provide(DaemonAuthentication(options.metricsKey))
      ),
      { disableLogger: true, disableListenLog: true }
    ).pipe(
      Layer.provide(leanRequests),
      Layer.provide(Layer.succeed(HttpRouter.RouterConfig, routerConfig)),
      Layer.provideMerge(
        NodeHttpServer.layer(() => server, {
          host: options.host,
          port: options.port,
          ...(options.fd === undefined ? {} : { fd: options.fd }),
          gracefulShutdownTimeout: SHUTDOWN_TIMEOUT,
          // A message is one line of a console; the default is 100 MiB.
          websocket: { maxPayload: LONGEST_MESSAGE }
        })
      ),
      Layer.provide(HttpConnections.layer(server)),
      Layer.merge(Layer.effectDiscard(logRefusedHandshakes(server)))
    )
  })
