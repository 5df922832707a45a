import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Duration, Effect, Layer } from "effect"
import { HttpRouter } from "effect/http"
import { HttpApiBuilder } from "effect/http-api"
import { RateLimiter } from "effect/persistence"
import { ApplicationApi, openApiDocuments } from "../contract/api/ApplicationApi.ts"
import { AuditRecorder, ServerNameOf } from "../contract/domain/AuditedRequest.ts"
import { Unauthorized } from "../contract/domain/errors.ts"
import { ServerId } from "../contract/domain/Id.ts"
import type { SystemInfo } from "../contract/domain/Node.ts"
import { ControlPlaneApi } from "../contract/nodeApi/ControlPlaneApi.ts"
import { AuditHandlers, AuditLog } from "../controlPlane/audit/AuditLog.ts"
import { BackupsHandlers, BackupTargetsHandlers } from "../controlPlane/backups/http.ts"
import { BlueprintsHandlers } from "../controlPlane/blueprints/Reloads.ts"
import { EventsHandlers } from "../controlPlane/events/http.ts"
import { OpenStreams, type StreamLimits, StreamShutdown } from "../controlPlane/events/OpenStreams.ts"
import { Tickets } from "../controlPlane/events/Tickets.ts"
import { webSocketOptions } from "../controlPlane/events/webSocketUpgrade.ts"
import { FilesHandlers } from "../controlPlane/files/http.ts"
import { UploadsHandlers } from "../controlPlane/files/uploads.ts"
import {
  AuthorizationLayer,
  FailuresLayer,
  ReadableServersLayer,
  WritesLayer
} from "../controlPlane/http/apiMiddleware.ts"
import { Authentication, Credentials } from "../controlPlane/http/authenticate.ts"
import { GracefulStop } from "../controlPlane/http/GracefulStop.ts"
import { LeavingBodies } from "../controlPlane/http/leavingBodies.ts"
import { HttpConnections } from "../controlPlane/http/node/connectionLimit.ts"
import { listenLocally } from "../controlPlane/http/node/localSocket.ts"
import { makeNodeServer, type TlsOptions } from "../controlPlane/http/node/nodeServer.ts"
import { withPipeline } from "../controlPlane/http/Pipeline.ts"
import { KeyEnds } from "../controlPlane/http/Principal.ts"
import { routerConfig, routesOf } from "../controlPlane/http/routes.ts"
import { ApiKeys, type AuthFailure, countAuthFailure, localPrincipal } from "../controlPlane/keys/ApiKeys.ts"
import { KeysHandlers, QuotasHandlers } from "../controlPlane/keys/http.ts"
import { NodesHandlers } from "../controlPlane/nodes/http.ts"
import { makeLogRefusedRegistrations } from "../controlPlane/nodes/registration.ts"
import { OperationsHandlers } from "../controlPlane/operations/http.ts"
import { CachedPages, makeCompressed } from "../controlPlane/pages/CachedPages.ts"
import { DashboardRoutes } from "../controlPlane/pages/dashboard.ts"
import { DocsRoutes } from "../controlPlane/pages/docs.ts"
import {
  MetricsHandlers,
  PublicPagesHandlers,
  type ServiceInspection,
  SystemHandlers
} from "../controlPlane/pages/publicPages.ts"
import { SchedulesHandlers } from "../controlPlane/schedules/http.ts"
import { NodeHandlers, RevokedNodes } from "../controlPlane/servers/gatewayHttp.ts"
import { ServersHandlers } from "../controlPlane/servers/http.ts"
import { ServerIndex } from "../controlPlane/servers/list/ServerIndex.ts"
import { RolloutsHandlers } from "../controlPlane/servers/rollouts/Rollouts.ts"
import { SftpHandlers, SshKeysHandlers } from "../controlPlane/sftp/http.ts"
import { WebhooksHandlers } from "../controlPlane/webhooks/Webhooks.ts"
import type { ServiceSettings } from "../shared/config/service.ts"
import { leanRequests } from "../shared/net/requestServices.ts"
import type { Reloadable } from "../shared/work/Reloadable.ts"

const REQUEST_TIMEOUT = Duration.seconds(30)

/** Values of a body (spec 1.2): 10,000 ids of a selector, or the overrides of a server, and room. */
const MOST_VALUES = 12_000

const REGISTER = "node.register"

const bearer = /^(\S+) +(\S+) *$/

const refuse = (reason: AuthFailure, detail: string) =>
  Effect.andThen(countAuthFailure(reason), Effect.fail(new Unauthorized({ detail })))

/** Verifies the API key, else a ticket. A caller over the unix socket needs neither: the folder's owner or root. */
const ServiceCredentials = Layer.effect(
  Credentials,
  Effect.gen(function* () {
    const keys = yield* ApiKeys
    const tickets = yield* Tickets
    const verifyTicket = Effect.fnUntraced(function* (ticket: string, limited: Effect.Effect<boolean>) {
      const found = yield* Effect.tapErrorTag(
        tickets.verify(ticket, { limited: yield* limited }),
        "Unauthorized",
        () => countAuthFailure("ticket")
      )
      return { ...found, ...(yield* keys.holder(found.key_id)) }
    })
    return Credentials.of({
      verify: ({ authorization, isLocal, limited, ticket }) => {
        if (authorization === undefined) {
          if (ticket !== undefined) return verifyTicket(ticket, limited)
          return isLocal
            ? Effect.succeed(localPrincipal)
            : refuse("no_header", "the Authorization header is missing")
        }
        const match = bearer.exec(authorization)
        return match?.[1]?.toLowerCase() !== "bearer" || match[2] === undefined
          ? refuse("malformed_header", "the Authorization header is not of the form `Bearer <key>`")
          : keys.verify(match[2], limited)
      }
    })
  })
)

export interface HttpOptions {
  readonly settings: ServiceSettings
  /** A socket that listens already, in place of host and port. */
  readonly fd?: number | undefined
  /** With it, the server speaks HTTPS only. */
  readonly tls: Reloadable<TlsOptions> | undefined
  /** Path of the unix socket for callers on this host. */
  readonly localSocket: string
  readonly system: SystemInfo
  readonly inspection: ServiceInspection
  readonly streams: StreamLimits
}

/** The documents are beside the bundle; the sources make one at its first request. */
const OpenApiRoutes = (version: string) =>
  HttpRouter.use(
    Effect.fnUntraced(function* (router) {
      for (const { make, path } of openApiDocuments) {
        const built = join(import.meta.dirname, path)
        const document = Effect.sync(() =>
          existsSync(built) ? readFileSync(built) : new TextEncoder().encode(JSON.stringify(make(version)))
        )
        yield* router.add("GET", path, yield* makeCompressed(document, "application/json"))
      }
    })
  )

const auditRecorder = Layer.mergeAll(
  Layer.effect(
    AuditRecorder,
    Effect.map(AuditLog, ({ record }) => record)
  ),
  Layer.effect(
    ServerNameOf,
    Effect.map(
      ServerIndex,
      ({ nameOf }) =>
        (id) =>
          nameOf(ServerId.make(id))
    )
  )
)

/** All routes with their pipeline; the caller provides the services. */
const routes = ({ inspection, settings, system }: HttpOptions) => {
  const logRefusedRegistrations = makeLogRefusedRegistrations()
  return Layer.mergeAll(
    HttpApiBuilder.layer(ApplicationApi).pipe(
      Layer.provide([
        NodesHandlers,
        ServersHandlers,
        FilesHandlers,
        UploadsHandlers,
        RolloutsHandlers,
        SftpHandlers,
        OperationsHandlers,
        SchedulesHandlers,
        BackupsHandlers,
        BackupTargetsHandlers,
        BlueprintsHandlers,
        EventsHandlers,
        WebhooksHandlers,
        KeysHandlers,
        SshKeysHandlers,
        QuotasHandlers,
        AuditHandlers,
        SystemHandlers(system, inspection, settings.keepDeleted),
        PublicPagesHandlers(system, settings.publicPages),
        MetricsHandlers(system)
      ]),
      Layer.provide([AuthorizationLayer, ReadableServersLayer, FailuresLayer, WritesLayer])
    ),
    HttpApiBuilder.layer(ControlPlaneApi).pipe(
      Layer.provide(NodeHandlers),
      Layer.provide([AuthorizationLayer, FailuresLayer])
    ),
    RevokedNodes,
    Layer.mergeAll(
      OpenApiRoutes(system.version),
      DocsRoutes(`Muster ${system.version}`),
      DashboardRoutes("Muster")
    ).pipe(Layer.provide(CachedPages))
  ).pipe(
    withPipeline({
      declared: [...routesOf(ApplicationApi), ...routesOf(ControlPlaneApi)],
      slsClients: true,
      corsOrigins: settings.corsOrigins,
      trustedProxies: settings.trustedProxies,
      bodyLimit: settings.bodyLimit,
      mostValues: MOST_VALUES,
      timeout: REQUEST_TIMEOUT,
      onResponse: ({ isKnown, params, route }, response) =>
        isKnown && route.name === REGISTER
          ? logRefusedRegistrations(params.node ?? "", response)
          : Effect.void
    }),
    Layer.provide(auditRecorder),
    Layer.provide(Authentication.layer({ rateLimit: settings.rateLimit })),
    Layer.provide([RateLimiter.layer, ServiceCredentials]),
    Layer.provide(RateLimiter.layerStoreMemory)
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
    const { settings } = options
    const server = makeNodeServer(options.tls)
    const stop = Layer.unwrap(
      Effect.map(StreamShutdown, ({ begin }) =>
        GracefulStop.onRelease({
          grace: Duration.seconds(settings.shutdownGrace),
          endStreams: begin
        })
      )
    )
    // Released first: it accepts no connection while the server shuts down.
    return Layer.effectDiscard(listenLocally(server, options.localSocket)).pipe(
      Layer.provideMerge(stop),
      Layer.provideMerge(HttpRouter.serve(routes(options), { disableLogger: true, disableListenLog: true })),
      Layer.provide(OpenStreams.layer(options.streams)),
      Layer.provide([StreamShutdown.layer, GracefulStop.layer, keyEnds]),
      Layer.provide(LeavingBodies(server)),
      Layer.provide(leanRequests),
      Layer.provide(Layer.succeed(HttpRouter.RouterConfig, routerConfig)),
      Layer.provideMerge(
        NodeHttpServer.layer(() => server, {
          host: settings.host,
          port: settings.port,
          ...(options.fd === undefined ? {} : { fd: options.fd }),
          disablePreemptiveShutdown: true,
          websocket: webSocketOptions
        })
      ),
      Layer.provide(HttpConnections.layer(server, { proxies: settings.trustedProxies }))
    )
  })
