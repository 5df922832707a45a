import { Context, Effect, Layer, Schedule } from "effect"
import type { ServiceSettings } from "../config/service.ts"
import { NodeDaemon } from "../daemon/NodeDaemon.ts"
import { nodeHost } from "../daemon/nodeHost.ts"
import type { NodeId } from "../domain/Id.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { Fleet } from "../nodes/fleet/Fleet.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { claimNode, daemonOptions } from "./daemonOptions.ts"
import { urlOf } from "./listenUrl.ts"

/** Seconds between two heartbeats; fewer if nodes are lost early. */
const HEARTBEAT = 10

/**
 * Waits until the node is connected, so that servers can be created as soon as the service listens. The wait is
 * bounded: a service whose node cannot register logs it and serves the other routes.
 */
const connected = (node_id: NodeId) =>
  Effect.flatMap(NodeRegistry, (registry) =>
    Effect.sync(() => registry.isConnected(node_id)).pipe(
      Effect.repeat({ until: (there) => there, schedule: Schedule.spaced("5 millis") }),
      Effect.timeoutOption("10 seconds")
    )
  )

/** Clears the registration of a process that ended without deregistering. */
const unavailable = Effect.fnUntraced(function* (node_id: NodeId) {
  const fleet = yield* Fleet
  const registry = yield* NodeRegistry
  const node = fleet.get(node_id)
  if (node?.connected !== true || node.record === undefined) return
  yield* Effect.catch(registry.revoke(node_id, node.record.token), (error) =>
    Effect.logWarning(`the last registration of the embedded node is still valid: ${error.detail}`)
  )
})

/** Deregisters the node, so that other services do not count it as connected. */
const deregister = (node_id: NodeId) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const fleet = yield* Fleet
      const registry = yield* NodeRegistry
      yield* Effect.addFinalizer(() =>
        Effect.suspend(() => registry.disconnect(node_id, fleet.get(node_id)?.record?.boot_id ?? "")).pipe(
          Effect.catchTags({
            RegistrationRequired: () => Effect.void,
            Unavailable: (error) => Effect.logWarning(`the embedded node cannot deregister: ${error.detail}`)
          })
        )
      )
    })
  )

/** Returns the address of the embedded daemon: that of the service, without a port that is not known yet. */
const addressOf = ({ host, nodeUrl, port }: ServiceSettings) =>
  nodeUrl !== "" ? nodeUrl : urlOf("http", host, port === 0 ? undefined : port)

const ownFiles = ({ blueprintsDir, databaseUrl, nodeClientKey, softwareDir }: ServiceSettings) => [
  blueprintsDir,
  softwareDir,
  nodeClientKey,
  ...(databaseUrl._tag === "Sqlite" ? ["", "-wal", "-shm"].map((end) => databaseUrl.filename + end) : [])
]

/** The embedded node before it is connected: its id, and the options of its daemon. */
export class EmbeddedHost extends Context.Service<
  EmbeddedHost,
  { readonly node_id: NodeId; readonly options: Effect.Success<ReturnType<typeof daemonOptions>> }
>()("muster/app/EmbeddedHost") {
  /** The host of the embedded node, with Docker only if an engine responds. It is probed while the control plane starts. */
  static readonly layer = (settings: ServiceSettings, dataDir: string) =>
    Layer.unwrap(
      Effect.gen(function* () {
        const node_id = yield* claimNode(dataDir)
        const { embeddedAllocations: allocations, embeddedRuntime: runtime } = settings
        const closed = ownFiles(settings)
        const options = yield* daemonOptions(settings, { dataDir, runtime, allocations, closed })
        return Layer.merge(
          Layer.succeed(EmbeddedHost, { node_id, options }),
          nodeHost({ ...options, node_id })
        )
      })
    )
}

/** Runs a daemon in this process. */
export const EmbeddedNode = (settings: ServiceSettings) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const client = yield* DaemonClient
      const { node_id, options } = yield* EmbeddedHost
      yield* unavailable(node_id)
      const daemon = NodeDaemon.layerOnHost({
        ...options,
        node_id,
        name: settings.nodeName,
        location: settings.nodeLocation,
        url: addressOf(settings),
        heartbeatSeconds: Math.min(HEARTBEAT, settings.nodeHeartbeatTimeout / 3),
        onShutdown: settings.embeddedOnShutdown,
        attach: client.attach
      })
      // With one service on the database, the next start makes every node register.
      const isShared = settings.databaseUrl._tag === "Postgres" && settings.embeddedOnShutdown === "stop"
      return Layer.effectDiscard(connected(node_id)).pipe(
        Layer.provideMerge(daemon),
        Layer.provideMerge(isShared ? deregister(node_id) : Layer.empty)
      )
    })
  )
