import { hostname } from "node:os"
import { join } from "node:path"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { isLoopback, socketPathOf, transportOf, whyNoSocket } from "../contract/domain/transport.ts"
import { ServedDaemon } from "../daemon/http.ts"
import { Instances } from "../daemon/instances/Instances.ts"
import { NodeDaemon } from "../daemon/NodeDaemon.ts"
import { ControlPlaneClient, NodeToken } from "../daemon/uplink/ControlPlaneClient.ts"
import { loadNodeSettings, type NodeSettings } from "../shared/config/node.ts"
import { StartError } from "../shared/config/StartError.ts"
import { connectTimeoutClient } from "../shared/net/connectTimeoutClient.ts"
import { defined } from "../shared/work/defined.ts"
import { DaemonHttpLayer } from "./daemonHttp.ts"
import { claimNode, daemonOptions } from "./daemonOptions.ts"
import { isWildcard, listenUrl, liveCa, liveTls, plainHttp, withPassedSocket } from "./listening.ts"
import { LoggingLayer } from "./logging.ts"
import { certificates, hangups, reloadOnHangup } from "./reloading.ts"
import { openDataDir, watchDataDisk } from "./storage.ts"
import { TelemetryLayer } from "./telemetry.ts"
import { version } from "./version.ts"

/** Connections to the control plane, shared by the reports of all servers. */
const CONNECTIONS = 32

/** Returns the address at which the control plane reaches this daemon, which listens on `listens`. */
const calledAt = ({ host, url }: NodeSettings, listens: string) => {
  if (url !== "") return Effect.succeed(url)
  if (!isWildcard(host)) return Effect.succeed(listens)
  return Effect.fail(
    new StartError({
      message: `MUSTER_NODE_HOST is ${host}: set MUSTER_NODE_URL to where the control plane reaches this daemon`
    })
  )
}

const sameAddress = (one: string, other: string) =>
  one === other || (URL.canParse(one) && URL.canParse(other) && new URL(one).href === new URL(other).href)

/** Runs the daemon of a node until it is interrupted (spec 9). */
const runNode = Effect.fnUntraced(function* (given: NodeSettings) {
  const settings = yield* withPassedSocket(given)
  const hungUp = yield* hangups
  const dataDir = yield* openDataDir(settings)
  yield* watchDataDisk(dataDir, join(dataDir, "node.reserve"))
  const node_id = yield* claimNode(dataDir, settings.id)
  const tls = yield* liveTls(
    { cert: "MUSTER_NODE_TLS_CERT", key: "MUSTER_NODE_TLS_KEY", clientCa: "MUSTER_NODE_CLIENT_CA" },
    { cert: settings.tlsCert, key: settings.tlsKey, clientCa: settings.clientCa }
  )
  if (tls === undefined && !isLoopback(settings.host)) {
    yield* plainHttp(
      settings.requireTls,
      `the daemon listens on ${settings.host} without TLS`,
      "set MUSTER_NODE_TLS_CERT and MUSTER_NODE_TLS_KEY"
    )
  }
  if (transportOf(settings.controlUrl) === "plain") {
    yield* plainHttp(
      settings.requireTls,
      `the control plane is called at ${settings.controlUrl} without TLS`,
      "give the service a certificate, and set MUSTER_CONTROL_URL to its https address"
    )
  }
  const socketPath = socketPathOf(settings.controlUrl)
  const impossible = socketPath === undefined ? undefined : whyNoSocket(socketPath)
  if (impossible !== undefined) {
    return yield* new StartError({ message: `MUSTER_CONTROL_URL: ${impossible}: set it to a shorter path` })
  }
  const ca = yield* liveCa("MUSTER_CONTROL_CA", settings.controlCa)
  yield* reloadOnHangup(hungUp, certificates(tls, ca))
  const { allocations, runtime } = settings
  const common = yield* daemonOptions(settings, { dataDir, runtime, allocations })

  const daemon = Layer.unwrap(
    Effect.gen(function* () {
      const served = yield* ServedDaemon
      const listens = yield* listenUrl(tls === undefined ? "http" : "https", settings)
      const url = yield* calledAt(settings, listens)
      const called = sameAddress(url, listens) ? "" : ` and is called at ${url}`
      yield* Effect.logInfo(`Muster ${version}, node ${node_id}, listens on ${listens}${called}`)
      return NodeDaemon.layer({
        ...common,
        node_id,
        name: settings.name === "" ? hostname() : settings.name,
        location: settings.location,
        url,
        heartbeatSeconds: settings.heartbeat,
        onShutdown: settings.onShutdown,
        attach: (_, made) => served.provideDaemon(made)
      })
    })
  )
  const log = (event: string) => Effect.annotateLogs(Effect.logInfo(event), { node_id })
  // Starts last, and stops first.
  const listed = Layer.effectDiscard(
    Effect.gen(function* () {
      const fate = settings.onShutdown === "stop" ? "its servers are stopped" : "its servers run on"
      yield* Effect.addFinalizer(() => log(`shutting down: ${fate}`))
      const served = yield* ServedDaemon
      const instances = yield* Instances
      yield* served.provideServers(instances.list)
    })
  )
  // The routes start before the node registers and stop after its servers have stopped; then the node deregisters.
  const app = listed.pipe(
    Layer.provideMerge(daemon),
    Layer.provideMerge(
      DaemonHttpLayer({
        host: settings.host,
        port: settings.port,
        ...(settings.fd === undefined ? {} : { fd: settings.fd }),
        metricsKey: settings.metricsKey,
        ...(tls === undefined ? {} : { tls })
      })
    ),
    Layer.provideMerge(
      ControlPlaneClient({
        node_id,
        url: settings.controlUrl,
        key: settings.key,
        deregister: settings.onShutdown === "stop"
      })
    ),
    Layer.provide(
      connectTimeoutClient({
        connections: CONNECTIONS,
        ...defined({ ca, socketPath })
      })
    ),
    Layer.provide(Layer.mergeAll(NodeToken.layer, ServedDaemon.layer)),
    Layer.provide(NodeServices.layer)
  )
  return yield* Layer.launch(app).pipe(Effect.onInterrupt(() => log("the daemon has ended")))
}, Effect.scoped)

const cannotListen = ({ cause }: { readonly cause: unknown }) =>
  Effect.fail(
    new StartError({
      message: `cannot listen (${cause instanceof Error ? cause.message : cause}): set MUSTER_NODE_PORT or MUSTER_NODE_HOST`
    })
  )

/** The program of `muster node`. */
export const node = Effect.gen(function* () {
  const settings = yield* loadNodeSettings
  yield* runNode(settings).pipe(
    Effect.catchTag("ServeError", cannotListen),
    Effect.provide(TelemetryLayer("muster-node", settings)),
    Effect.provide(LoggingLayer(settings))
  )
})
