import { Context, Effect, Fiber, Layer, Schedule, Scope } from "effect"
import { Unavailable } from "../contract/domain/errors.ts"
import type { NodeId } from "../contract/domain/Id.ts"
import { Started } from "../controlPlane/http/GracefulStop.ts"
import { DaemonClient } from "../controlPlane/nodes/DaemonClient.ts"
import { Fleet } from "../controlPlane/nodes/fleet/Fleet.ts"
import { NodeRegistry } from "../controlPlane/nodes/NodeRegistry.ts"
import { NodeDaemon } from "../daemon/NodeDaemon.ts"
import { nodeHost } from "../daemon/nodeHost.ts"
import type { ServiceSettings } from "../shared/config/service.ts"
import { claimNode, daemonOptions } from "./daemonOptions.ts"
import { urlOf } from "./listening.ts"

/** Seconds between two heartbeats; fewer if nodes are lost early. */
const HEARTBEAT = 10

/** The longest wait of a request for the start: an engine that does not respond takes longer. */
const LONGEST_WAIT = "10 seconds"

/** Waits until the node is connected, for a bounded time: other routes are served even if it cannot register. */
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

/** Builds a layer in a fiber. Both end with the scope. */
const inBackground = Effect.fnUntraced(function* <A, E, R>(layer: Layer.Layer<A, E, R>) {
  const scope = yield* Effect.scope
  // Closed after the end of the fiber, which the scope gets later.
  const own = yield* Scope.fork(scope)
  return yield* Effect.forkIn(Layer.buildWithScope(layer, own), scope)
})

type Host = ReturnType<typeof nodeHost>

/** Probes the host in the background, which takes longer than the start of the control plane. */
const makeHost = Effect.fnUntraced(function* (settings: ServiceSettings, dataDir: string) {
  const node_id = yield* claimNode(dataDir)
  const { embeddedAllocations: allocations, embeddedRuntime: runtime } = settings
  const options = yield* daemonOptions(settings, {
    dataDir,
    runtime,
    allocations,
    closed: ownFiles(settings)
  })
  const probed = yield* inBackground(nodeHost({ ...options, node_id }))
  return { node_id, options, host: Fiber.join(probed) }
})

/** The embedded node before it is connected: its id, the options of its daemon, and its host once it is probed. */
export class EmbeddedHost extends Context.Service<
  EmbeddedHost,
  Effect.Success<ReturnType<typeof makeHost>>
>()("muster/app/EmbeddedHost") {
  /** The host of the embedded node, with Docker only if an engine responds. */
  static readonly layer = (settings: ServiceSettings, dataDir: string) =>
    Layer.effect(EmbeddedHost, makeHost(settings, dataDir))
}

export class EmbeddedNode extends Context.Service<
  EmbeddedNode,
  {
    readonly connected: Effect.Effect<
      void,
      Layer.Error<Host> | Layer.Error<ReturnType<typeof NodeDaemon.layerOnHost>>
    >
  }
>()("muster/app/EmbeddedNode") {
  static readonly layerNone = Layer.succeed(EmbeddedNode, EmbeddedNode.of({ connected: Effect.void }))

  /** Runs a daemon in this process. The service listens before it is connected; {@link Started} holds requests back. */
  static readonly layer = (settings: ServiceSettings) =>
    Layer.effectContext(
      Effect.gen(function* () {
        const client = yield* DaemonClient
        const { host, node_id, options } = yield* EmbeddedHost
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
        const starting = yield* Layer.effectDiscard(connected(node_id)).pipe(
          Layer.provideMerge(daemon),
          Layer.provideMerge(isShared ? deregister(node_id) : Layer.empty),
          Layer.provide(Layer.effectContext(host)),
          inBackground
        )
        return Context.make(EmbeddedNode, { connected: Effect.asVoid(Fiber.join(starting)) }).pipe(
          Context.add(Started, {
            isDone: () => starting.pollUnsafe() !== undefined,
            done: Effect.timeoutOrElse(Effect.asVoid(Fiber.await(starting)), {
              duration: LONGEST_WAIT,
              orElse: () => Effect.fail(Unavailable.starting())
            })
          })
        )
      })
    )
}
