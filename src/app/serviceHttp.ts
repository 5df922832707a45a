import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Duration, Effect, Layer } from "effect"
import { HttpRouter } from "effect/http"
import { HttpApiBuilder, HttpApiMiddleware, OpenApi } from "effect/http-api"
import type { IpNetwork } from "effect/net"
import { RateLimiter } from "effect/persistence"
import { ApplicationApi } from "../api/ApplicationApi.ts"
import { AnyFailure, SchemaErrors, Writes } from "../api/Failures.ts"
import { NodeApi } from "../api/NodeApi.ts"
import { KeyEnds } from "../api/Principal.ts"
import { BlueprintsHandlers } from "../blueprints/http.ts"
import { DatabaseFull, InsufficientStorage } from "../domain/errors.ts"
import type { Reloadable } from "../domain/Reloadable.ts"
import type { SystemInfo } from "../domain/SystemInfo.ts"
import { EventsHandlers } from "../events/http.ts"
import { OpenStreams, type StreamLimits } from "../events/OpenStreams.ts"
import { StreamShutdown } from "../events/StreamShutdown.ts"
import { webSocketOptions } from "../events/webSocketUpgrade.ts"
import { routerConfig } from "../http/allowedMethods.ts"
import { Authentication } from "../http/authenticate.ts"
import { HttpConnections } from "../http/connectionLimit.ts"
import { invalidRequest } from "../http/errorResponse.ts"
import { FailedLogins } from "../http/FailedLogins.ts"
import { GracefulStop } from "../http/GracefulStop.ts"
import { limiterStore } from "../http/limiterStore.ts"
import { makeNodeServer, type TlsOptions } from "../http/nodeServer.ts"
import { Pipeline } from "../http/Pipeline.ts"
import { ApiKeys } from "../keys/ApiKeys.ts"
import { AuthorizationLayer } from "../keys/authorization.ts"
import { NodeAuthorizationLayer } from "../keys/NodeKeys.ts"
import { NodesHandlers } from "../nodes/http.ts"
import { CachedPages } from "../pages/CachedPages.ts"
import { DocsRoutes, makeCompressed, SCRIPT } from "../pages/docs.ts"
import { MetricsHandlers, PublicPagesHandlers, SystemHandlers } from "../pages/publicPages.ts"
import { RevokedNodes } from "../servers/controllers/revokedNodes.ts"
import { ServersHandlers } from "../servers/http.ts"
import { NodeHandlers } from "../servers/nodeHttp.ts"

const REQUEST_TIMEOUT = Duration.seconds(30)

/** Settings of the HTTP server. */
export interface HttpOptions {
  readonly host: string
  /** 0: any free port. */
  readonly port: number
  /** With it, the server speaks HTTPS only. */
  readonly tls?: Reloadable<TlsOptions>
  readonly system: SystemInfo
  /** Bytes. */
  readonly body_limit: number
  /** Requests a minute and key; 0: no limit. */
  readonly rate_limit: number
  readonly cors_origins: ReadonlyArray<string>
  readonly trusted_proxies: ReadonlyArray<IpNetwork.IpNetwork>
  readonly streams: StreamLimits
  /** The nodes on pages without a key; `banner`: neither ids nor addresses. */
  readonly publicPages: "banner" | "all"
  /** The time between `readyz` turning 503 and the end of the server; default: none. */
  readonly shutdown_grace?: Duration.Duration
}

/** Returns 422 for input that does not decode, in every API. */
export const SchemaErrorsLayer = HttpApiMiddleware.layerSchemaErrorTransform(SchemaErrors, (error) => {
  const invalid = invalidRequest(error)
  return invalid === undefined ? Effect.die(error) : Effect.fail(invalid)
})

export const AnyFailureLayer = Layer.succeed(
  AnyFailure,
  AnyFailure.of((handler) => handler)
)

const WritesLayer = Layer.succeed(
  Writes,
  Writes.of((handler) =>
    Effect.catchIf(
      handler,
      (error): error is typeof error & DatabaseFull => error instanceof DatabaseFull,
      (error) => Effect.fail(InsufficientStorage.of(error))
    )
  )
)

/** The contract with the version of this build. */
const versioned = (version: string) => ApplicationApi.annotate(OpenApi.Version, version)

const OpenApiRoute = (api: ReturnType<typeof versioned>) =>
  HttpRouter.use(
    Effect.fnUntraced(function* (router) {
      const document = new TextEncoder().encode(JSON.stringify(OpenApi.fromApi(api)))
      yield* router.add("GET", "/openapi.json", yield* makeCompressed(document, "application/json"))
    })
  )

/** All routes with their pipeline; the caller provides the services. */
export const routes = (options: Omit<HttpOptions, "host" | "port">) => {
  const api = versioned(options.system.version)
  return Layer.mergeAll(
    HttpApiBuilder.layer(ApplicationApi).pipe(
      Layer.provide([
        NodesHandlers,
        ServersHandlers,
        BlueprintsHandlers,
        EventsHandlers,
        SystemHandlers(options.system),
        PublicPagesHandlers(options.system, options.publicPages),
        MetricsHandlers
      ]),
      Layer.provide([AuthorizationLayer, SchemaErrorsLayer, AnyFailureLayer, WritesLayer])
    ),
    HttpApiBuilder.layer(NodeApi).pipe(
      Layer.provide(NodeHandlers),
      Layer.provide([NodeAuthorizationLayer, SchemaErrorsLayer, AnyFailureLayer])
    ),
    RevokedNodes,
    Layer.mergeAll(OpenApiRoute(api), DocsRoutes(`Muster ${options.system.version}`)).pipe(
      Layer.provide(CachedPages)
    ),
    Pipeline({
      cors_origins: options.cors_origins,
      trusted_proxies: options.trusted_proxies,
      body_limit: options.body_limit,
      timeout: REQUEST_TIMEOUT,
      pages: ["/openapi.json", "/docs", SCRIPT]
    }).pipe(
      Layer.provide(Authentication.layer({ rate_limit: options.rate_limit })),
      Layer.provide([RateLimiter.layer, FailedLogins.layer()]),
      Layer.provide(limiterStore)
    )
  )
}

/** Ends streams when their key becomes invalid. */
const keyEnds = Layer.effect(
  KeyEnds,
  Effect.map(
    ApiKeys,
    ({ ended }) =>
      (principal) =>
        principal === undefined ? Effect.never : ended(principal.key_id)
  )
)

/** The HTTP server with all routes; `HttpServer` in the output has the port. {@link GracefulStop} describes its end. */
export const ServiceHttp = (options: HttpOptions) =>
  Layer.suspend(() => {
    const server = makeNodeServer(options.tls)
    return GracefulStop.onRelease(server, { grace: options.shutdown_grace ?? Duration.zero }).pipe(
      Layer.provideMerge(HttpRouter.serve(routes(options), { disableLogger: true, disableListenLog: true })),
      Layer.provide(OpenStreams.layer(options.streams)),
      Layer.provide([StreamShutdown.layer, GracefulStop.layer, keyEnds]),
      Layer.provide(Layer.succeed(HttpRouter.RouterConfig, routerConfig)),
      Layer.provideMerge(
        NodeHttpServer.layer(() => server, {
          host: options.host,
          port: options.port,
          disablePreemptiveShutdown: true,
          websocket: webSocketOptions
        })
      ),
      Layer.provide(HttpConnections.layer(server, { proxies: options.trusted_proxies }))
    )
  })
