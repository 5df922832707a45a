import { resolve } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Duration, Effect, Layer, Option, Redacted } from "effect"
import { Command } from "effect/cli"
import { BlueprintStore } from "../blueprints/BlueprintStore.ts"
import { ReloadNews } from "../blueprints/ReloadNews.ts"
import { Reloads } from "../blueprints/Reloads.ts"
import { SoftwareStore } from "../blueprints/SoftwareStore.ts"
import { layerSources, layerUnlisted } from "../blueprints/sources/Sources.ts"
import { ServiceConfig, type ServiceSettings } from "../config/service.ts"
import { hostInfo } from "../daemon/host/hostInfo.ts"
import { isLoopback } from "../domain/transport.ts"
import { EventHub } from "../events/EventHub.ts"
import { Tickets } from "../events/Tickets.ts"
import { HttpLayer } from "../http/HttpLayer.ts"
import { ApiKeys, SHORTEST_SAFE_KEY } from "../keys/ApiKeys.ts"
import { ensureFirstKey, type FirstKey } from "../keys/firstKey.ts"
import { NodeKeys } from "../keys/NodeKeys.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { Fleet } from "../nodes/fleet/Fleet.ts"
import { LoadBalancer } from "../nodes/LoadBalancer.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import type { NodeTls } from "../nodes/remote/impatientClient.ts"
import { makeNodeNetworks } from "../nodes/remote/nodeNetworks.ts"
import { RemoteDaemons } from "../nodes/remote/RemoteDaemons.ts"
import { layerServers } from "../servers/layerServers.ts"
import { watchDataDisk } from "./dataDisk.ts"
import { EmbeddedNode } from "./embeddedNode.ts"
import { certificates, hangups, reloadOnHangup } from "./hangups.ts"
import { listenUrl } from "./listenUrl.ts"
import { LoggingLayer } from "./logging.ts"
import { plainHttp } from "./plainHttp.ts"
import { endOnSecondSignal } from "./secondSignal.ts"
import { refuseOtherSecret, SecretLayer } from "./secretKey.ts"
import { takeVariable } from "./secretVariables.ts"
import { refuseUnreachableNodes } from "./soleService.ts"
import { hasEmbeddedNode, makeRoom, openDataDir, ServiceLocks, StoreLayer } from "./storage.ts"
import { streamLimits } from "./streamLimits.ts"
import { liveCa, liveTls } from "./tls.ts"
import { warnOfUnknownSettings } from "./unknownSettings.ts"
import { version } from "./version.ts"

/** The control plane without its transport: store, blueprints, nodes, servers, events, keys. */
export const ControlPlaneLayer = (settings: ServiceSettings, dataDir: string, tls: NodeTls = {}) =>
  // The hub after the servers: the read model has followed a change before anybody is told of it.
  Layer.mergeAll(
    EventHub.layer(),
    Tickets.layer(),
    NodeKeys.layer,
    Reloads.layer,
    RemoteDaemons.layer({
      ...tls,
      networks: makeNodeNetworks(settings.nodeNetworks),
      requireTls: settings.requireTls
    })
  ).pipe(
    Layer.provideMerge(layerServers()),
    Layer.provideMerge(LoadBalancer.layer(placementOptions(settings))),
    Layer.provideMerge(
      NodeRegistry.layer({
        heartbeat_timeout: Duration.seconds(settings.nodeHeartbeatTimeout),
        node_lost_after: Duration.seconds(settings.nodeLostAfter),
        token_lifetime: Duration.hours(settings.nodeTokenHours)
      })
    ),
    Layer.provideMerge(Layer.mergeAll(Fleet.layer, DaemonClient.layer)),
    Layer.provideMerge(BlueprintStore.layer({ directory: resolve(settings.blueprintsDir) })),
    Layer.provideMerge(SoftwareStore.layer({ directory: resolve(settings.softwareDir) })),
    Layer.provideMerge(SourcesLayer(settings, dataDir)),
    Layer.provideMerge(ReloadNews.layer),
    Layer.provideMerge(ApiKeys.layer(adminKeyOf(settings))),
    Layer.provideMerge(refuseOtherSecret),
    Layer.provideMerge(StoreLayer(settings, dataDir, { isService: true })),
    Layer.provideMerge(SecretLayer(settings, dataDir))
  )

/** Git repositories that are synced into the definition folders, where a file lists some. */
const SourcesLayer = (settings: ServiceSettings, dataDir: string) =>
  settings.blueprintSources === ""
    ? layerUnlisted({ data_dir: dataDir })
    : layerSources({
        file: resolve(settings.blueprintSources),
        data_dir: dataDir,
        folders: { blueprints: resolve(settings.blueprintsDir), software: resolve(settings.softwareDir) },
        cacheBytes: settings.sourcesCacheMib * 1_048_576,
        environment: process.env,
        variable: takeVariable
      })

const placementOptions = (settings: ServiceSettings) => ({
  strategy: settings.placement,
  memory_overcommit: settings.overcommitMemory,
  disk_overcommit: settings.overcommitDisk
})

const adminKeyOf = (settings: ServiceSettings) =>
  Option.match(settings.adminKey, { onNone: () => ({}), onSome: (adminKey) => ({ adminKey }) })

/** What a person who starts the service needs to know, once it answers. */
const announce = Effect.fnUntraced(function* (
  settings: ServiceSettings,
  first: FirstKey,
  scheme: "http" | "https"
) {
  const url = yield* listenUrl(scheme, settings)
  yield* Effect.logInfo(`Muster ${version} listens on ${url}`)
  if (first._tag !== "NotNeeded") yield* Effect.logInfo(first.message)
  const key = first.path === undefined ? "<your key>" : `$(cat ${first.path})`
  yield* Effect.logInfo(`Try: curl -H "Authorization: Bearer ${key}" ${url}/api/nodes`)
  yield* Effect.logInfo(`All routes: ${url}/docs`)
})

const warnings = Effect.fnUntraced(function* (settings: ServiceSettings) {
  yield* warnOfUnknownSettings
  if (Option.isSome(settings.adminKey)) {
    const { length } = Redacted.value(settings.adminKey.value)
    if (length < SHORTEST_SAFE_KEY) {
      yield* Effect.logWarning(
        `APP_ADMIN_API_KEY has ${length} characters: use at least ${SHORTEST_SAFE_KEY}, or \`muster keys create\`. An address with too many failed authentications cannot use it`
      )
    }
  }
})

const serveWith = Effect.fnUntraced(function* (settings: ServiceSettings) {
  yield* endOnSecondSignal
  const hungUp = yield* hangups
  yield* warnings(settings)
  const dataDir = yield* openDataDir(settings)
  yield* makeRoom(settings, dataDir)
  yield* watchDataDisk(dataDir)
  const tls = yield* liveTls(
    { cert: "MUSTER_TLS_CERT", key: "MUSTER_TLS_KEY" },
    { cert: settings.tlsCert, key: settings.tlsKey }
  )
  if (tls === undefined && !isLoopback(settings.host)) {
    yield* plainHttp(
      settings.requireTls,
      `the service listens on ${settings.host} without TLS`,
      "set MUSTER_TLS_CERT and MUSTER_TLS_KEY, or set MUSTER_HOST to 127.0.0.1 and put a TLS proxy before the service"
    )
  }
  const ca = yield* liveCa("MUSTER_NODE_CA", settings.nodeCa)
  const certificate = yield* liveTls(
    { cert: "MUSTER_NODE_CLIENT_CERT", key: "MUSTER_NODE_CLIENT_KEY" },
    { cert: settings.nodeClientCert, key: settings.nodeClientKey }
  )
  const nodeTls = {
    ...(ca === undefined ? {} : { ca }),
    ...(certificate === undefined ? {} : { certificate })
  }
  const http = HttpLayer({
    host: settings.host,
    port: settings.port,
    ...(tls === undefined ? {} : { tls }),
    system: { version, system: hostInfo() },
    body_limit: settings.bodyLimit,
    rate_limit: settings.rateLimit,
    cors_origins: settings.corsOrigins,
    trusted_proxies: settings.trustedProxies,
    publicPages: settings.publicPages,
    streams: yield* Effect.provide(streamLimits(settings), NodeServices.layer),
    shutdown_grace: Duration.seconds(settings.shutdownGrace)
  })
  // The key is there before the service answers.
  const answering = Layer.unwrap(
    Effect.map(ensureFirstKey({ dataDir, ...adminKeyOf(settings) }), (first) =>
      Layer.effectDiscard(announce(settings, first, tls === undefined ? "http" : "https")).pipe(
        Layer.provideMerge(http)
      )
    )
  )
  const reloading = Layer.effectDiscard(
    Effect.flatMap(Reloads, ({ blueprints, software }) =>
      reloadOnHangup(hungUp, [
        { name: "software", reload: Effect.as(software, true) },
        { name: "blueprints", reload: Effect.as(blueprints, true) },
        ...certificates(tls, ca, certificate)
      ])
    )
  )
  const app = Layer.merge(answering, reloading).pipe(
    Layer.provideMerge(hasEmbeddedNode(settings) ? EmbeddedNode(settings, dataDir) : Layer.empty),
    Layer.provideMerge(refuseUnreachableNodes(settings)),
    Layer.provideMerge(ControlPlaneLayer(settings, dataDir, nodeTls)),
    Layer.provide(ServiceLocks(settings, dataDir)),
    Layer.provide(NodeServices.layer)
  )
  return yield* Layer.launch(app)
}, Effect.scoped)

/** `muster serve`: the service, with an embedded node unless the settings say otherwise. */
export const serve = Command.make(
  "serve",
  {},
  Effect.fn(function* () {
    const settings = yield* ServiceConfig.load
    yield* serveWith(settings).pipe(Effect.provide(LoggingLayer(settings)))
  })
).pipe(Command.withDescription("Run the service"))
