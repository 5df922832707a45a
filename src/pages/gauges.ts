import { monitorEventLoopDelay } from "node:perf_hooks"
import { Effect, Metric } from "effect"
import type { NodeId } from "../domain/Id.ts"
import { ServerStatus } from "../domain/ServerStatus.ts"
import { EventHub } from "../events/EventHub.ts"
import { OpenStreams } from "../events/OpenStreams.ts"
import { HttpConnections } from "../http/connectionLimit.ts"
import { LoadBalancer } from "../nodes/LoadBalancer.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { ServerManager } from "../servers/ServerManager.ts"
import { Journal } from "../store/journal/Journal.ts"

const servers = Metric.gauge("muster_servers", { description: "Servers by status." })
const nodes = Metric.gauge("muster_nodes", { description: "Known nodes by connection." })
const subscribers = Metric.gauge("muster_event_subscribers", { description: "Open event streams." })
const openStreams = Metric.gauge("muster_open_streams", {
  description: "Open event streams and consoles, as the stream limits count them."
})
const newest = Metric.gauge("muster_journal_newest_cursor", { description: "Cursor of the newest change." })
const oldest = Metric.gauge("muster_journal_oldest_cursor", {
  description: "Cursor of the oldest retained change."
})
const databaseUp = Metric.gauge("muster_database_up", {
  description: "1 while the database is available, else 0; writes are then refused."
})
const placements = Metric.counter("muster_placements_total", {
  description: "Placements by outcome.",
  incremental: true
})
const load = Metric.gauge("muster_node_load", { description: "Load average of a node over one minute." })
const memoryUsed = Metric.gauge("muster_node_memory_used_bytes", {
  description: "Memory in use on the host of a node, from its last heartbeat."
})
const diskUsed = Metric.gauge("muster_node_disk_used_bytes", {
  description: "Disk in use on the host of a node, from its last heartbeat."
})
const lag = Metric.gauge("muster_event_loop_lag_seconds", {
  description: "Event loop delay since the last reading."
})

const connections = Metric.gauge("muster_http_connections", { description: "Open HTTP connections." })
const dropped = Metric.counter("muster_http_connections_dropped_total", {
  description: "Connections dropped because too many were open.",
  incremental: true
})

const LAG_RESOLUTION_MS = 10

/** Updates the metrics that are not counted as events occur; runs before each response of `/metrics`. */
export const makeObserve = Effect.gen(function* () {
  const manager = yield* ServerManager
  const registry = yield* NodeRegistry
  const balancer = yield* LoadBalancer
  /** Nodes that have their own series. */
  const shown = new Set<NodeId>()
  const hub = yield* EventHub
  const streams = yield* OpenStreams
  const http = yield* HttpConnections
  /** The totals at the last reading: a counter is updated by the difference. */
  let countedDrops = 0
  let countedPlacements = { placed: 0, refused: 0 }
  const journal = yield* Journal
  const delay = yield* Effect.acquireRelease(
    Effect.sync(() => {
      const histogram = monitorEventLoopDelay({ resolution: LAG_RESOLUTION_MS })
      histogram.enable()
      return histogram
    }),
    (histogram) => Effect.sync(() => histogram.disable())
  )
  return Effect.gen(function* () {
    const counts = yield* manager.counts
    for (const status of ServerStatus.literals) {
      yield* Metric.update(Metric.withAttributes(servers, { status }), counts.get(status) ?? 0)
    }
    const details = yield* registry.details
    const connected = details.filter((node) => node.connected).length
    yield* Metric.update(Metric.withAttributes(nodes, { connected: "true" }), connected)
    yield* Metric.update(Metric.withAttributes(nodes, { connected: "false" }), details.length - connected)
    for (const { id, usage } of details) {
      if (usage === null || !registry.isConnected(id)) continue
      shown.add(id)
      yield* Metric.update(Metric.withAttributes(load, { node: id }), usage.load)
      yield* Metric.update(Metric.withAttributes(memoryUsed, { node: id }), usage.memory_bytes)
      yield* Metric.update(Metric.withAttributes(diskUsed, { node: id }), usage.disk_bytes)
    }
    for (const id of shown) {
      if (registry.isConnected(id)) continue
      shown.delete(id)
      for (const gauge of [load, memoryUsed, diskUsed]) {
        yield* Metric.remove(Metric.withAttributes(gauge, { node: id }))
      }
    }
    yield* Metric.update(subscribers, yield* hub.subscribers)
    yield* Metric.update(openStreams, yield* streams.count)
    yield* Metric.update(connections, http.open())
    const allDropped = http.dropped()
    yield* Metric.update(dropped, allDropped - countedDrops)
    countedDrops = allDropped
    const total = yield* balancer.placements
    for (const outcome of ["placed", "refused"] as const) {
      const counter = Metric.withAttributes(placements, { outcome })
      yield* Metric.update(counter, total[outcome] - countedPlacements[outcome])
    }
    countedPlacements = total
    const bounds = yield* Effect.option(journal.bounds)
    yield* Metric.update(databaseUp, bounds._tag === "Some" ? 1 : 0)
    if (bounds._tag === "Some") {
      yield* Metric.update(newest, bounds.value.newest)
      yield* Metric.update(oldest, bounds.value.oldest)
    }
    for (const [quantile, nanoseconds] of [
      ["0.5", delay.percentile(50)],
      ["0.99", delay.percentile(99)],
      ["1", delay.max]
    ] as const) {
      // The histogram measures from tick to tick: without lag it shows its resolution.
      const seconds = Math.max(0, nanoseconds / 1e9 - LAG_RESOLUTION_MS / 1000)
      yield* Metric.update(Metric.withAttributes(lag, { quantile }), seconds)
    }
    delay.reset()
  })
})
