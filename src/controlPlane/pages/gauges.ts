import { Clock, Effect, Metric } from "effect"
import type { NodeDetail } from "../../contract/domain/Node.ts"
import { ServerStatus } from "../../contract/domain/ServerStatus.ts"
import {
  auditSize,
  backupAge,
  backupBytes,
  databaseUp,
  httpConnections,
  httpDropped,
  journalNewest,
  journalOldest,
  nodeCount,
  nodeDiskUsed,
  nodeDrained,
  nodeLoad,
  nodeMemory,
  nodeMemoryCommitted,
  nodeMemoryUsed,
  nodePortsFree,
  nodeServers,
  nodeUp,
  openStreams,
  placements,
  serverCount,
  subscribers,
  waitingStarts
} from "../../shared/observability/metrics.ts"
import { makeSeries, makeTotal, type Series } from "../../shared/observability/observations.ts"
import { EventHub } from "../events/EventHub.ts"
import { OpenStreams } from "../events/OpenStreams.ts"
import { HttpConnections } from "../http/node/connectionLimit.ts"
import { LoadBalancer } from "../nodes/LoadBalancer.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { ServerManager } from "../servers/ServerManager.ts"
import { Journal } from "../store/journal/Journal.ts"
import { AuditRepo } from "../store/repos/AuditRepo.ts"
import { BackupRepo } from "../store/repos/BackupRepo.ts"
import { Store } from "../store/Store.ts"

/** @param heard whether the heartbeats of the node arrive, so that its usage is that of now */
const seriesOf = (detail: NodeDetail, heard: boolean): ReadonlyArray<Series> => {
  const { capacity, committed, connected, drained, id, name, ports_free, servers, usage } = detail
  const labels = { node: id }
  return [
    { gauge: nodeUp, labels: { node: id, name }, value: Number(connected) },
    { gauge: nodeDrained, labels, value: Number(drained) },
    { gauge: nodeServers, labels, value: servers },
    { gauge: nodeMemory, labels, value: capacity.memory_bytes },
    { gauge: nodeMemoryCommitted, labels, value: committed.memory_bytes },
    { gauge: nodePortsFree, labels, value: ports_free },
    ...(usage === null || !heard
      ? []
      : [
          { gauge: nodeLoad, labels, value: usage.load },
          { gauge: nodeMemoryUsed, labels, value: usage.memory_bytes },
          { gauge: nodeDiskUsed, labels, value: usage.disk_bytes }
        ])
  ]
}

/** Sets the age and the size of the good backups of each blueprint, unless the database is away. */
const makeBackupSeries = Effect.gen(function* () {
  const repo = yield* BackupRepo
  const store = yield* Store
  const setSeries = makeSeries()
  return Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    const all = yield* store.read(repo.byBlueprint)
    yield* setSeries(
      all.flatMap(
        ({ blueprint_id: blueprint, newest, stored_bytes }): ReadonlyArray<Series> => [
          { gauge: backupAge, labels: { blueprint }, value: Math.max(0, now - Date.parse(newest)) / 1000 },
          { gauge: backupBytes, labels: { blueprint }, value: stored_bytes }
        ]
      )
    )
  }).pipe(Effect.ignore)
})

/** Returns an effect that updates the metrics of the service; it runs before each response of `/metrics`. */
export const makeObserve = Effect.gen(function* () {
  const manager = yield* ServerManager
  const registry = yield* NodeRegistry
  const balancer = yield* LoadBalancer
  const hub = yield* EventHub
  const streams = yield* OpenStreams
  const http = yield* HttpConnections
  const journal = yield* Journal
  const store = yield* Store
  const audit = yield* AuditRepo
  const setBackups = yield* makeBackupSeries
  const setSeries = makeSeries()
  const setDropped = makeTotal(httpDropped)
  const setPlaced = makeTotal(Metric.withAttributes(placements, { outcome: "placed" }))
  const setRefused = makeTotal(Metric.withAttributes(placements, { outcome: "refused" }))
  return Effect.gen(function* () {
    const counts = yield* manager.counts
    for (const status of ServerStatus.literals) {
      yield* Metric.update(Metric.withAttributes(serverCount, { status }), counts.get(status) ?? 0)
    }
    yield* Metric.update(waitingStarts, yield* manager.waiting)
    const details = yield* registry.details
    const connected = details.filter((node) => node.connected).length
    yield* Metric.update(Metric.withAttributes(nodeCount, { connected: "true" }), connected)
    yield* Metric.update(Metric.withAttributes(nodeCount, { connected: "false" }), details.length - connected)
    yield* setSeries(details.flatMap((detail) => seriesOf(detail, registry.isConnected(detail.id))))
    yield* Metric.update(subscribers, yield* hub.subscribers)
    yield* Metric.update(openStreams, yield* streams.count)
    yield* Metric.update(httpConnections, http.open())
    yield* setDropped(http.dropped())
    const { placed, refused } = yield* balancer.placements
    yield* setPlaced(placed)
    yield* setRefused(refused)
    const bounds = yield* Effect.option(journal.bounds)
    yield* Metric.update(databaseUp, bounds._tag === "Some" ? 1 : 0)
    if (bounds._tag === "Some") {
      yield* Metric.update(journalNewest, bounds.value.newest)
      yield* Metric.update(journalOldest, bounds.value.oldest)
      yield* Effect.ignore(Effect.flatMap(store.read(audit.size), (bytes) => Metric.update(auditSize, bytes)))
      yield* setBackups
    }
  })
})
