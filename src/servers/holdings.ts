import { Effect, Option } from "effect"
import { LoadBalancer } from "../nodes/LoadBalancer.ts"
import { Journal } from "../store/Journal.ts"
import { ServerIndex } from "./ServerIndex.ts"

/**
 * Makes what the load balancer holds follow the journal: what existing servers hold at start, what servers hold
 * that other processes created, and nothing of a server whose removal is committed.
 */
export const followHoldings = Effect.gen(function* () {
  const balancer = yield* LoadBalancer
  const index = yield* ServerIndex
  const journal = yield* Journal

  yield* journal.follow((entries) =>
    Effect.forEach(
      entries,
      ({ change }) => {
        const id = change.server_id
        if (change.topic === "deleted") return balancer.release(id)
        if (change.topic !== "server:created" || index.isCreating(id)) return Effect.void
        return Effect.flatMap(index.find(id), (record) => balancer.restore(Option.toArray(record)))
      },
      { discard: true }
    )
  )
  yield* balancer.restore(yield* index.records)
})
