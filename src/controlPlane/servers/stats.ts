/** Figures of many servers, from their nodes (spec 3.7). */

import { Array as Arr, Clock, Effect, FiberMap, Layer, RcMap, Schedule } from "effect"
import type { NodeId, ServerId } from "../../contract/domain/Id.ts"
import type { FiguresById, ServerRecord, ServerStats } from "../../contract/domain/Server.ts"
import type { Daemon } from "../../contract/nodeApi/Daemon.ts"
import { MOST_STATS } from "../../contract/nodeApi/DaemonApi.ts"
import { inSlices } from "../../shared/work/slices.ts"
import { type EventFilter, intervalOf, letsThrough } from "../events/EncodedEvent.ts"
import { LiveFeed, type LiveNews, StatsFeed } from "../events/LiveFeed.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { ServerIndex } from "./list/ServerIndex.ts"

/**
 * Measures servers for the topic `stats` (spec 3.11) by one call to each node and interval. A node that has not
 * answered yet is left out.
 */
export const StatsSampler = Layer.effect(
  StatsFeed,
  Effect.gen(function* () {
    const index = yield* ServerIndex
    const live = yield* LiveFeed
    const registry = yield* NodeRegistry
    const statsOf = yield* makeStatsOf

    const isWanted = (filter: EventFilter, { blueprint_id, id, labels, node_id }: ServerRecord) =>
      registry.isConnected(node_id) && letsThrough(filter, { server_id: id, blueprint_id, labels })

    /** Returns the servers of connected nodes that a filter admits. A filter with ids looks at these only. */
    const wanted = Effect.fnUntraced(function* (filters: ReadonlyArray<EventFilter>) {
      const open = filters.filter(({ serverIds }) => serverIds === undefined)
      const found = new Set<ServerRecord>()
      yield* inSlices(function* () {
        for (const record of open.length === 0 ? [] : index.all()) {
          if (open.some((filter) => isWanted(filter, record))) found.add(record)
          yield
        }
      })
      for (const filter of filters) {
        for (const id of filter.serverIds ?? []) {
          const record = index.get(id)
          if (record !== undefined && isWanted(filter, record)) found.add(record)
        }
      }
      return [...found]
    })

    const measure = Effect.fnUntraced(function* (interval: number, records: ReadonlyArray<ServerRecord>) {
      const figures = yield* statsOf(records.map(({ id }) => id))
      const at = yield* Clock.currentTimeMillis
      const news = records.flatMap(({ blueprint_id, id, labels }): ReadonlyArray<LiveNews> => {
        const payload = figures.get(id) ?? null
        return payload === null
          ? []
          : [{ topic: "stats", server_id: id, blueprint_id, labels, at, payload, interval }]
      })
      live.publish(news.filter(({ server_id }) => index.get(server_id) !== undefined))
    })

    /** By interval: the filters that share its measurements. */
    const samplings = yield* RcMap.make({
      lookup: Effect.fnUntraced(function* (interval: number) {
        const filters = new Set<EventFilter>()
        const calls = yield* FiberMap.make<NodeId>()
        const tick = Effect.gen(function* () {
          const byNode = Map.groupBy(yield* wanted([...filters]), ({ node_id }) => node_id)
          for (const [node_id, records] of byNode) {
            yield* FiberMap.run(calls, node_id, measure(interval, records), { onlyIfMissing: true })
          }
        })
        yield* Effect.forkScoped(Effect.repeat(tick, Schedule.fixed(`${interval} seconds`)))
        return filters
      })
    })

    return StatsFeed.of({
      listen: Effect.fnUntraced(function* (filter) {
        const filters = yield* RcMap.get(samplings, intervalOf(filter))
        filters.add(filter)
        yield* Effect.addFinalizer(() => Effect.sync(() => filters.delete(filter)))
      })
    })
  })
)

const NODES_AT_ONCE = 64
/** Servers of one call. To decode more figures takes too long for one turn. */
const SERVERS_OF_CALL = 500
const CALLS_AT_ONCE = 4
/** Longest wait for all nodes. The servers of later ones have no figures. */
const DEADLINE = "5 seconds"

/** Returns the figures of servers. A server without figures is absent. */
export const makeStatsOf = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex

  const ofSome = Effect.fnUntraced(function* (
    daemon: Daemon,
    ids: ReadonlyArray<ServerId>,
    found: Map<ServerId, ServerStats>
  ) {
    const answer = yield* daemon.statsOfMany(ids)
    for (const id of ids) {
      const stats = Object.hasOwn(answer, id) ? answer[id] : undefined
      if (stats !== undefined && stats !== null) found.set(id, stats)
    }
  })

  const ofNode = (node_id: NodeId, ids: ReadonlyArray<ServerId>, found: Map<ServerId, ServerStats>) =>
    Effect.flatMap(daemons.of(node_id), (daemon) =>
      Effect.forEach(
        Arr.chunksOf(ids.slice(0, MOST_STATS), SERVERS_OF_CALL),
        (some) => ofSome(daemon, some, found),
        { concurrency: CALLS_AT_ONCE, discard: true }
      )
    ).pipe(
      Effect.catch((error) => Effect.logDebug(`no figures from a node: ${error._tag}`)),
      Effect.annotateLogs({ node_id })
    )

  return Effect.fn("ServerManager.statsOf")(function* (ids: ReadonlyArray<ServerId>) {
    const byNode = new Map<NodeId, Array<ServerId>>()
    yield* inSlices(function* () {
      for (const id of ids) {
        const record = index.get(id)
        if (record === undefined) continue
        const others = byNode.get(record.node_id)
        if (others === undefined) byNode.set(record.node_id, [id])
        else others.push(id)
        yield
      }
    })
    const found = new Map<ServerId, ServerStats>()
    yield* Effect.forEach(byNode, ([node_id, ofIt]) => ofNode(node_id, ofIt, found), {
      concurrency: NODES_AT_ONCE,
      discard: true
    }).pipe(Effect.timeoutOption(DEADLINE))
    const figures: FiguresById = found
    return figures
  })
})
