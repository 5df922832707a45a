/** Figures of many servers, with one call to each of their nodes (life.md, "Reading"). */
import { Effect } from "effect"
import type { Daemon, DaemonError } from "../api/Daemon.ts"
import { MOST_STATS } from "../api/DaemonApi.ts"
import type { NodeId, ServerId } from "../domain/Id.ts"
import type { ServerStats, StatsById } from "../domain/Server.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { ServerIndex } from "./index/ServerIndex.ts"

/** Nodes that are called at a time. */
const NODES_AT_ONCE = 64
/** Servers of a daemon of an earlier version that are asked for at a time. */
const SERVERS_AT_ONCE = 8
/** The longest wait for all nodes: the servers of later ones have no figures. */
const DEADLINE = "5 seconds"

/** A daemon of an earlier version does not have the route. */
const lacksRoute = (error: DaemonError): boolean => error._tag === "DaemonRefused" && error.status === 404

/** Asks for one server after another, and gives up where the node cannot be reached. */
const oneByOne = (daemon: Daemon, ids: ReadonlyArray<ServerId>, found: Map<ServerId, ServerStats>) =>
  Effect.forEach(
    ids,
    (id) =>
      daemon.stats(id, { update_disk_usage: false }).pipe(
        Effect.tap((stats) => Effect.sync(() => found.set(id, stats))),
        Effect.catchTag("DaemonRefused", () => Effect.void)
      ),
    { concurrency: SERVERS_AT_ONCE, discard: true }
  )

/** Makes the function that returns the figures of servers; a server without figures is absent. */
export const makeStatsOf = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex

  const ofNode = (node_id: NodeId, ids: ReadonlyArray<ServerId>, found: Map<ServerId, ServerStats>) =>
    Effect.gen(function* () {
      const daemon = yield* daemons.of(node_id)
      const answer = yield* daemon
        .statsOfMany(ids.slice(0, MOST_STATS))
        .pipe(Effect.catchIf(lacksRoute, () => Effect.as(oneByOne(daemon, ids, found), undefined)))
      for (const id of answer === undefined ? [] : ids) {
        const stats = answer !== undefined && Object.hasOwn(answer, id) ? answer[id] : undefined
        if (stats !== undefined && stats !== null) found.set(id, stats)
      }
    }).pipe(
      Effect.catch((error) => Effect.logDebug(`no figures from a node: ${error._tag}`)),
      Effect.annotateLogs({ node_id })
    )

  return Effect.fn("ServerManager.statsOf")(function* (ids: ReadonlyArray<ServerId>) {
    const byNode = new Map<NodeId, Array<ServerId>>()
    for (const id of ids) {
      const record = index.get(id)
      if (record === undefined) continue
      const others = byNode.get(record.node_id) ?? []
      others.push(id)
      byNode.set(record.node_id, others)
    }
    const found = new Map<ServerId, ServerStats>()
    yield* Effect.forEach(byNode, ([node_id, ofIt]) => ofNode(node_id, ofIt, found), {
      concurrency: NODES_AT_ONCE,
      discard: true
    }).pipe(Effect.timeoutOption(DEADLINE))
    return Object.fromEntries(ids.map((id) => [id, found.get(id) ?? null])) satisfies StatsById as StatsById
  })
})
