import { monitorEventLoopDelay } from "node:perf_hooks"
import { Effect, Metric } from "effect"
import { ServerStatus } from "../domain/ServerStatus.ts"
import { EventHub } from "../events/EventHub.ts"
import { OpenStreams } from "../events/OpenStreams.ts"
import { HttpConnections } from "../http/connectionLimit.ts"
import { LoadBalancer } from "../nodes/LoadBalancer.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { ServerManager } from "../servers/ServerManager.ts"
import { Journal } from "../store/journal/Journal.ts"

const servers = Metric.gauge("muster_servers", { description: "Servers, by status." })
const nodes = Metric.gauge("muster_nodes", { description: "Known nodes, by whether they are connected." })
const subscribers = Metric.gauge("muster_event_subscribers", { description: "Open event streams." })
const openStreams = Metric.gauge("muster_open_streams", {
  description: "Open event streams and consoles, which the limits of streams count."
})
const newest = Metric.gauge("muster_journal_newest_cursor", { description: "Cursor of the newest change." })
const oldest = Metric.gauge("muster_journal_oldest_cursor", {
  description: "Cursor of the oldest change kept."
})
const databaseUp = Metric.gauge("muster_database_up", {
  description: "Whether the database answers: 1, else 0; writes are refused then."
})
const placed = Metric.gauge("muster_placements_total", { description: "Placements, by outcome." })
const load = Metric.gauge("muster_node_load", { description: "Load average of a node's last minute." })
const memoryUsed = Metric.gauge("muster_node_memory_used_bytes", {
  description: "Memory in use on a node's machine, as its last heartbeat said."
})
const diskUsed = Metric.gauge("muster_node_disk_used_bytes", {
  description: "Disk in use on a node's machine, as its last heartbeat said."
})
const lag = Metric.gauge("muster_event_loop_lag_seconds", {
  description: "Event loop delay since the last look."
})

const connections = Metric.gauge("muster_http_connections", { description: "Open HTTP connections." })
const dropped = Metric.counter("muster_http_connections_dropped_total", {
  description: "Connections dropped because too many were open.",
  incremental: true
})

const LAG_RESOLUTION_MS = 10

/** Looks at everything that is not counted as it happens; called once for each read of `/metrics`. */
export const makeObserve = Effect.gen(function* () {
  const manager = yield* ServerManager
  const registry = yield* NodeRegistry
  const balancer = yield* LoadBalancer
  /** Nodes that have series of their own. */
  const shown = new Set<string>()
  const hub = yield* EventHub
  const streams = yield* OpenStreams
  const http = yield* HttpConnections
  let counted = 0
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
    yield* Metric.update(dropped, http.dropped() - counted)
    counted = http.dropped()
    const outcome = yield* balancer.placements
    yield* Metric.update(Metric.withAttributes(placed, { outcome: "placed" }), outcome.placed)
    yield* Metric.update(Metric.withAttributes(placed, { outcome: "refused" }), outcome.refused)
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
      // The histogram measures from tick to tick: a loop without any lag shows the resolution.
      const seconds = Math.max(0, nanoseconds / 1e9 - LAG_RESOLUTION_MS / 1000)
      yield* Metric.update(Metric.withAttributes(lag, { quantile }), seconds)
    }
    delay.reset()
  })
})
