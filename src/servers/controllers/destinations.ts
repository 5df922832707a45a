import { Effect } from "effect"
import type { ServerId } from "../../domain/Id.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import { LoadBalancer, type Placement } from "../../nodes/LoadBalancer.ts"
import { placementOf } from "../../nodes/placementRequest.ts"
import { secondReservation } from "../index/reservations.ts"
import { ServerGarbageCollector } from "./ServerGarbageCollector.ts"

/**
 * The nodes that migrating servers go to, with the reservations there until their records are there. Both end with the
 * leader: the next one chooses again.
 */
export const makeDestinations = Effect.gen(function* () {
  const balancer = yield* LoadBalancer
  const collector = yield* ServerGarbageCollector
  const placements = new Map<ServerId, Placement>()
  /** By server: the reason that no node was found. */
  const unplaced = new Map<ServerId, string>()

  return {
    unplaced,
    /** Chooses a node for a server and reserves there; undefined: no node fits. */
    find: Effect.fnUntraced(function* (record: ServerRecord) {
      const known = placements.get(record.id)
      if (known !== undefined) return known
      const found = yield* Effect.result(
        balancer.place({
          ...placementOf(record),
          server_id: secondReservation(record.id),
          isRetry: unplaced.has(record.id),
          from: record.node_id,
          except: collector.pendingOn(record.id)
        })
      )
      if (found._tag === "Failure") {
        unplaced.set(record.id, `${found.failure.detail}: ${found.failure.hint}`)
        return undefined
      }
      unplaced.delete(record.id)
      placements.set(record.id, found.success)
      return found.success
    }),
    /** Releases the reservation of a server. */
    release: Effect.fnUntraced(function* (id: ServerId) {
      if (placements.delete(id)) yield* balancer.release(secondReservation(id))
    }),
    /** Releases the reservation of a server because one of its ports is taken. */
    releaseAndAvoidPorts: Effect.fnUntraced(function* (id: ServerId) {
      if (placements.delete(id)) yield* balancer.releaseAndAvoidPorts(secondReservation(id))
    }),
    /** Releases all reservations: another replica leads. */
    releaseAll: Effect.suspend(() => {
      const ids = [...placements.keys()]
      placements.clear()
      unplaced.clear()
      return Effect.forEach(ids, (id) => balancer.release(secondReservation(id)), { discard: true })
    }),
    /** The record of the server has the reservation from now on, or has none. */
    reached: (id: ServerId): void => void placements.delete(id)
  } as const
})
export type Destinations = Effect.Success<typeof makeDestinations>
