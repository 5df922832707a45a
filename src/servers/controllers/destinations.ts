import { Effect } from "effect"
import type { ServerRecord } from "../../domain/Server.ts"
import { LoadBalancer, type Placement } from "../../nodes/LoadBalancer.ts"
import { secondReservation } from "../index/reservations.ts"
import { placementOf } from "../records/placementOf.ts"
import { ServerGarbageCollector } from "./ServerGarbageCollector.ts"

/**
 * Where servers that leave their nodes go, and what is held for them there until their records are there: lost with
 * this process, so that after a restart another place is looked for.
 */
export const makeDestinations = Effect.gen(function* () {
  const balancer = yield* LoadBalancer
  const leftovers = yield* ServerGarbageCollector
  const placements = new Map<string, Placement>()
  /** Why no node could be found for a server, as far as it is known. */
  const homeless = new Map<string, string>()

  return {
    homeless,
    /** Finds a node for a server, and holds there what it needs; undefined: there is none. */
    find: Effect.fnUntraced(function* (record: ServerRecord) {
      const known = placements.get(record.id)
      if (known !== undefined) return known
      const found = yield* Effect.result(
        balancer.place({
          ...placementOf(record),
          server_id: secondReservation(record.id),
          except: [record.node_id, ...leftovers.of(record.id)]
        })
      )
      if (found._tag === "Failure") {
        homeless.set(record.id, `${found.failure.detail}: ${found.failure.hint}`)
        return undefined
      }
      homeless.delete(record.id)
      placements.set(record.id, found.success)
      return found.success
    }),
    /** Gives back what is held for a server. */
    release: Effect.fnUntraced(function* (id: string) {
      if (placements.delete(id)) yield* balancer.release(secondReservation(id))
    }),
    /** {@link release}, because others have a port of it. */
    yieldPorts: Effect.fnUntraced(function* (id: string) {
      if (placements.delete(id)) yield* balancer.releaseAndAvoidPorts(secondReservation(id))
    }),
    /** Gives back everything: another replica looks for places from now on. */
    releaseAll: Effect.suspend(() => {
      const ids = [...placements.keys()]
      placements.clear()
      homeless.clear()
      return Effect.forEach(ids, (id) => balancer.release(secondReservation(id)), { discard: true })
    }),
    /** What is held for it is from now on what its record says. */
    reached: (id: string): void => void placements.delete(id)
  } as const
})
