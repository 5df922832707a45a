import { Effect, Option } from "effect"
import { serverOf } from "../../domain/Journal.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import { LoadBalancer } from "../../nodes/LoadBalancer.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { ServerIndex } from "./ServerIndex.ts"

/** What a server that moves holds of the node that it is not on goes by a name of its own. */
export const secondReservation = (server_id: string): string => `${server_id}/other`

/**
 * Makes what the load balancer holds follow the journal: what existing servers hold at start, what servers hold
 * that other processes created, what those that move hold of both nodes, and nothing of a server whose removal is
 * committed.
 */
export const followReservations = Effect.gen(function* () {
  const balancer = yield* LoadBalancer
  const index = yield* ServerIndex
  const journal = yield* Journal

  /** What a server holds: of its node, and while it arrives of the one that has its files. */
  const holdingsOf = Effect.fnUntraced(function* (record: ServerRecord) {
    const move = yield* index.migrationOf(record.id)
    if (move?.phase !== "arriving" || move.origin === null) return [record]
    const { allocations } = move.origin
    return [record, { ...record, id: secondReservation(record.id), node_id: move.from_node, allocations }]
  })

  const placed = Effect.fnUntraced(function* (id: string) {
    const record = Option.getOrUndefined(yield* index.find(id))
    if (record === undefined) return
    const holdings = yield* holdingsOf(record)
    // In one step: nothing is free in between.
    yield* balancer.restore(holdings)
    if (holdings.length === 1) yield* balancer.release(secondReservation(id))
  })

  yield* journal.follow("read-model", (entries) =>
    Effect.forEach(
      entries,
      ({ change }) => {
        const id = serverOf(change)
        if (id === undefined) return Effect.void
        if (change.topic === "deleted") {
          return Effect.andThen(balancer.release(id), balancer.release(secondReservation(id)))
        }
        if (change.topic === "server:placed") return placed(id)
        // A move that is over, however it ended.
        if (change.topic === "server:move" && change.payload === null)
          return balancer.release(secondReservation(id))
        if (change.topic !== "server:created" || index.isCreating(id)) return Effect.void
        return Effect.flatMap(index.find(id), (record) => balancer.restore(Option.toArray(record)))
      },
      { discard: true }
    )
  )
  const held = yield* Effect.forEach(yield* index.records, holdingsOf)
  yield* balancer.restore(held.flat())
})
