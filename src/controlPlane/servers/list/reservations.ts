import { Effect } from "effect"
import type { ServerId } from "../../../contract/domain/Id.ts"
import { type JournalEntry, serverOf } from "../../../contract/domain/Journal.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import type { ReservationId } from "../../nodes/fleet/FleetNode.ts"
import { LoadBalancer } from "../../nodes/LoadBalancer.ts"
import type { Reserved } from "../../nodes/placementChoice.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { ServerIndex } from "./ServerIndex.ts"

export const secondReservation = (server_id: ServerId): ReservationId => `${server_id}/other`

/**
 * Keeps the reservations of the load balancer equal to the records of all replicas, for migrating servers on both
 * nodes. A committed removal releases them.
 */
export const followReservations = Effect.gen(function* () {
  const balancer = yield* LoadBalancer
  const index = yield* ServerIndex
  const journal = yield* Journal

  /** Returns the reservation of a migrating server on the node that has its files, unless it is its own node. */
  const secondOf = (record: ServerRecord): ReadonlyArray<Reserved> => {
    const migration = index.migrationOf(record.id)
    if (migration?.phase !== "arriving" || migration.origin === null) return []
    const { allocations } = migration.origin
    const id = secondReservation(record.id)
    return [{ ...record, id, node_id: migration.from_node, allocations }]
  }

  const placed = Effect.fnUntraced(function* (id: ServerId) {
    const record = index.get(id)
    if (record === undefined) return
    const second = secondOf(record)
    // In one step, so that no port is free in between.
    yield* balancer.restore([record, ...second])
    if (second.length === 0) yield* balancer.release(secondReservation(id))
  })

  const effectsOf = ({ change }: JournalEntry): ReadonlyArray<Effect.Effect<void>> => {
    const id = serverOf(change)
    if (id === undefined) return []
    if (change.topic === "deleted") return [balancer.release(id), balancer.release(secondReservation(id))]
    if (change.topic === "server:placed" || change.topic === "server:changed") return [placed(id)]
    if (change.topic === "server:move" && change.payload === null)
      return [balancer.release(secondReservation(id))]
    if (change.topic !== "server:created" || index.isCreating(id)) return []
    const record = index.get(id)
    return record === undefined ? [] : [balancer.restore([record])]
  }

  yield* journal.follow("read-model", (entries) => Effect.all(entries.flatMap(effectsOf), { discard: true }))
  const migrating = (yield* index.migrations).flatMap(({ server_id }) => index.get(server_id) ?? [])
  yield* balancer.restore([...index.all(), ...migrating.flatMap(secondOf)])
})
