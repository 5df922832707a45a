import { join, resolve } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Duration, Effect, Layer, Option, Redacted } from "effect"
import { isLoopback, LOCAL_SOCKET } from "../contract/domain/transport.ts"
import { BlueprintStore } from "../controlPlane/blueprints/BlueprintStore.ts"
import { Reloads } from "../controlPlane/blueprints/Reloads.ts"
import { SHORTEST_SAFE_KEY } from "../controlPlane/keys/ApiKeys.ts"
import { ensureFirstKey, type FirstKey } from "../controlPlane/keys/firstKey.ts"
import { RemoteDaemons } from "../controlPlane/nodes/remote/RemoteDaemons.ts"
import { WebhooksFile } from "../controlPlane/webhooks/layerWebhooks.ts"
import { hostInfo } from "../daemon/host/hostInfo.ts"
import { type ServiceSettings, settings as service, settingViews } from "../shared/config/service.ts"
import { adminKeyOf, ControlPlaneLayer } from "./controlPlane.ts"
import { watchDataDisk } from "./dataDisk.ts"
import { EmbeddedHost, EmbeddedNode } from "./embeddedNode.ts"
import { certificates, hangups, reloadOnHangup } from "./hangups.ts"
import { listenUrl } from "./listenUrl.ts"
import { endOnSecondSignal } from "./onSignal.ts"
import { withPassedSocket } from "./passedSocket.ts"
import { plainHttp } from "./plainHttp.ts"
import { RecentLog } from "./RecentLog.ts"
import { ServiceHttp } from "./serviceHttp.ts"
import { refuseUnreachableNodes } from "./singleServiceGuard.ts"
import { hasEmbeddedNode, makeRoom, openDataDir, ServiceLocks } from "./storage.ts"
import { streamLimits } from "./streamLimits.ts"
import { liveCa, liveTls } from "./tls.ts"
import { warnOfUnknownSettings } from "./unknownSettings.ts"
import { version } from "./version.ts"

/** Logs the next step if there are no blueprints. */
const explainEmpty = Effect.fnUntraced(function* ({ blueprintsDir }: ServiceSettings) {
  const { list } = yield* BlueprintStore
  if ((yield* list).length > 0) return
  yield* Effect.logWarning(
    `no blueprints in ${resolve(blueprintsDir)}: write some, or run \`muster init\` for examples; then run \`kill -HUP ${process.pid}\``
  )
})

/** Quotes a word of a shell command if it needs that. */
const quoted = (word: string) => (/^[\w./:@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`)

/** Returns a first command for another terminal, with the setting that it needs there. */
const commandFor = ({ dataDir }: ServiceSettings): string => {
  const folder = dataDir === service.dataDir.standard ? "" : `MUSTER_DATA_DIR=${quoted(resolve(dataDir))} `
  return `${folder}muster servers list`
}

/** Logs the addresses, the admin key's file and a first command, once the service answers all requests. */
const announce = Effect.fnUntraced(function* (
  settings: ServiceSettings,
  first: FirstKey,
  scheme: "http" | "https"
) {
  yield* Effect.flatMap(EmbeddedNode, ({ connected }) => connected)
  const url = yield* listenUrl(scheme, settings)
  yield* Effect.logInfo(`Muster ${version} listens on ${url}`)
  if (first._tag !== "NotNeeded") yield* Effect.logInfo(first.message)
  const key = first.path === undefined ? "" : `, sign in with the key in ${first.path}`
  yield* Effect.logInfo(`Dashboard: ${url}/dashboard${key}`)
  yield* Effect.logInfo(`Command line: ${commandFor(settings)}`)
  yield* Effect.logInfo(`All routes: ${url}/docs`)
  yield* explainEmpty(settings)
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

/** Runs the service until it is interrupted, with an embedded node unless the settings disable it. */
export const runService = Effect.fnUntraced(function* (given: ServiceSettings) {
  const settings = yield* withPassedSocket(given)
  const recent = yield* RecentLog
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
  const http = ServiceHttp({
    host: settings.host,
    port: settings.port,
    ...(settings.fd === undefined ? {} : { fd: settings.fd }),
    ...(tls === undefined ? {} : { tls }),
    localSocket: join(dataDir, LOCAL_SOCKET),
    system: { version, system: hostInfo() },
    inspection: { settings: yield* settingViews, log: recent.lines },
    bodyLimit: settings.bodyLimit,
    rateLimit: settings.rateLimit,
    corsOrigins: settings.corsOrigins,
    trustedProxies: settings.trustedProxies,
    publicPages: settings.publicPages,
    streams: yield* Effect.provide(streamLimits(settings), NodeServices.layer),
    shutdownGrace: Duration.seconds(settings.shutdownGrace)
  })
  // The key exists before the service responds.
  const answering = Layer.unwrap(
    Effect.map(ensureFirstKey({ dataDir, ...adminKeyOf(settings) }), (first) =>
      Layer.effectDiscard(announce(settings, first, tls === undefined ? "http" : "https")).pipe(
        Layer.provideMerge(
          Layer.effectDiscard(Effect.flatMap(RemoteDaemons, ({ recall }) => Effect.forkScoped(recall)))
        ),
        Layer.provideMerge(http)
      )
    )
  )
  const reloading = Layer.effectDiscard(
    Effect.flatMap(Effect.all([Reloads, WebhooksFile]), ([{ blueprints, software }, webhooks]) =>
      reloadOnHangup(hungUp, [
        { name: "software", reload: Effect.as(software, true) },
        { name: "blueprints", reload: Effect.as(blueprints, true) },
        ...(settings.webhooks === "" ? [] : [{ name: "webhooks", reload: webhooks.reload }]),
        ...certificates(tls, ca, certificate)
      ])
    )
  )
  const controlPlane = ControlPlaneLayer(settings, dataDir, nodeTls)
  const checked = refuseUnreachableNodes(settings).pipe(Layer.provideMerge(controlPlane))
  const withNode = hasEmbeddedNode(settings)
    ? EmbeddedNode.layer(settings).pipe(
        Layer.provideMerge(Layer.merge(checked, EmbeddedHost.layer(settings, dataDir)))
      )
    : Layer.merge(checked, EmbeddedNode.layerNone)
  const app = Layer.merge(answering, reloading).pipe(
    Layer.provideMerge(withNode),
    Layer.provide(ServiceLocks(settings, dataDir)),
    Layer.provide(NodeServices.layer)
  )
  return yield* Layer.launch(app).pipe(Effect.onInterrupt(() => Effect.logInfo("the service has ended")))
}, Effect.scoped)
