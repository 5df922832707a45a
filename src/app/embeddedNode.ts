import { Effect, Layer, Schedule } from "effect"
import type { ServiceSettings } from "../config/service.ts"
import { NodeDaemon } from "../daemon/NodeDaemon.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { Fleet } from "../nodes/fleet/Fleet.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { claimNode, daemonOptions } from "./daemonOptions.ts"
import { urlOf } from "./listenUrl.ts"

/** Seconds between two signs of life; sooner where a node is lost soon. */
const HEARTBEAT = 10

/**
 * Waits until the node is connected, so that who is told that the service listens can create servers at once. Not
 * for ever: a service whose node cannot register says so in its log, and serves what it can.
 */
const connected = (node_id: string) =>
  Effect.flatMap(NodeRegistry, (registry) =>
    Effect.sync(() => registry.isConnected(node_id)).pipe(
      Effect.repeat({ until: (there) => there, schedule: Schedule.spaced("5 millis") }),
      Effect.timeoutOption("10 seconds")
    )
  )

/** What the process before has left: it may not have been able to say good-bye. */
const unavailable = Effect.fnUntraced(function* (node_id: string) {
  const fleet = yield* Fleet
  const registry = yield* NodeRegistry
  const node = fleet.get(node_id)
  if (node?.connected !== true || node.record === undefined) return
  yield* Effect.catch(registry.revoke(node_id, node.record.token), (error) =>
    Effect.logWarning(`the embedded node's last registration still counts: ${error.detail}`)
  )
})

/** Other services would take a node for connected whose process has ended in good order. */
const deregister = (node_id: string) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const fleet = yield* Fleet
      const registry = yield* NodeRegistry
      yield* Effect.addFinalizer(() =>
        Effect.suspend(() => registry.disconnect(node_id, fleet.get(node_id)?.record?.boot_id ?? "")).pipe(
          Effect.catchTags({
            RegistrationRequired: () => Effect.void,
            Unavailable: (error) =>
              Effect.logWarning(`the embedded node has not said good-bye: ${error.detail}`)
          })
        )
      )
    })
  )

/** An embedded daemon is reached where the service is; a port that is not known yet is left out. */
const addressOf = ({ host, nodeUrl, port }: ServiceSettings) =>
  nodeUrl !== "" ? nodeUrl : urlOf("http", host, port === 0 ? undefined : port)

const ownFiles = ({ blueprintsDir, databaseUrl, nodeClientKey, softwareDir }: ServiceSettings) => [
  blueprintsDir,
  softwareDir,
  nodeClientKey,
  ...(databaseUrl._tag === "Sqlite" ? ["", "-wal", "-shm"].map((end) => databaseUrl.filename + end) : [])
]

/** A daemon in this process, which has Docker only where an engine answers: needs `ControlPlane` and `DaemonClient`. */
export const EmbeddedNode = (settings: ServiceSettings, dataDir: string) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const client = yield* DaemonClient
      const node_id = yield* claimNode(dataDir)
      yield* unavailable(node_id)
      const { embeddedAllocations: allocations, embeddedRuntime: runtime } = settings
      const daemon = NodeDaemon.layer({
        ...(yield* daemonOptions(settings, { dataDir, runtime, allocations, closed: ownFiles(settings) })),
        node_id,
        name: settings.nodeName,
        location: settings.nodeLocation,
        url: addressOf(settings),
        heartbeat_seconds: Math.min(HEARTBEAT, settings.nodeHeartbeatTimeout / 3),
        on_shutdown: settings.embeddedOnShutdown,
        attach: client.attach
      })
      // With one service on the database, its next start makes every node register.
      const isShared = settings.databaseUrl._tag === "Postgres" && settings.embeddedOnShutdown === "stop"
      return Layer.effectDiscard(connected(node_id)).pipe(
        Layer.provideMerge(daemon),
        Layer.provideMerge(isShared ? deregister(node_id) : Layer.empty)
      )
    })
  )
