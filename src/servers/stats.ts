/** Figures of many servers, from their nodes (spec 3.7). */
import { Array as Arr, Effect } from "effect"
import type { Daemon, DaemonError } from "../api/Daemon.ts"
import { MOST_STATS } from "../api/DaemonApi.ts"
import type { NodeId, ServerId } from "../domain/Id.ts"
import type { FiguresById, ServerStats } from "../domain/Server.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { inSlices } from "../work/slices.ts"
import { ServerIndex } from "./index/ServerIndex.ts"

/** Nodes that are called at a time. */
const NODES_AT_ONCE = 64
/** Servers of one call: to decode the figures of more takes too long for one turn. */
const SERVERS_OF_CALL = 500
/** Calls to one node at a time. */
const CALLS_AT_ONCE = 4
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

  const ofSome = (daemon: Daemon, ids: ReadonlyArray<ServerId>, found: Map<ServerId, ServerStats>) =>
    daemon.statsOfMany(ids).pipe(
      Effect.tap((answer) =>
        Effect.sync(() => {
          for (const id of ids) {
            const stats = Object.hasOwn(answer, id) ? answer[id] : undefined
            if (stats !== undefined && stats !== null) found.set(id, stats)
          }
        })
      ),
      Effect.catchIf(lacksRoute, () => oneByOne(daemon, ids, found))
    )

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
        const others = byNode.get(record.node_id) ?? []
        others.push(id)
        byNode.set(record.node_id, others)
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
