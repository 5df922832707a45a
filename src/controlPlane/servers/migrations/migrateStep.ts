import { Clock, Effect, Option } from "effect"
import { noticeMillis } from "../../../contract/domain/Drain.ts"
import type { ServerId } from "../../../contract/domain/Id.ts"
import { isUnderway, type Migration } from "../../../contract/domain/Migration.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { LoadBalancer, type Placement } from "../../nodes/LoadBalancer.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { placementOf } from "../../nodes/placementRequest.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { secondReservation } from "../list/reservations.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { ServerGarbageCollector } from "../state/ServerGarbageCollector.ts"
import type { Drains } from "./drains.ts"
import { makeMigrationSteps } from "./migrationSteps.ts"

/**
 * The destinations of migrating servers and their reservations until the records are there. Both end with the leader:
 * the next one chooses again.
 */
export const makeDestinations = Effect.gen(function* () {
  const balancer = yield* LoadBalancer
  const collector = yield* ServerGarbageCollector
  const placements = new Map<ServerId, Placement>()
  const unplaced = new Map<ServerId, string>()

  return {
    unplaced,
    /** Chooses a node for a server and reserves there, if a node fits. */
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
    release: Effect.fnUntraced(function* (id: ServerId) {
      if (placements.delete(id)) yield* balancer.release(secondReservation(id))
    }),
    releaseAndAvoidPorts: Effect.fnUntraced(function* (id: ServerId) {
      if (placements.delete(id)) yield* balancer.releaseAndAvoidPorts(secondReservation(id))
    }),
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
type Destinations = Effect.Success<typeof makeDestinations>

/** Drives the migration of one server, away from its node or back. */
export const makeMigrateStep = Effect.fnUntraced(function* (destinations: Destinations, drains: Drains) {
  const index = yield* ServerIndex
  const journal = yield* Journal
  const registry = yield* NodeRegistry
  const steps = yield* makeMigrationSteps

  /** Sends the line of the drain to a running server and waits. If the drain ends meanwhile, the server stays. */
  const giveNotice = Effect.fnUntraced(function* (record: ServerRecord, migration: Migration) {
    const drain = (yield* drains.all).get(migration.from_node)
    const { notified_at } = migration
    if (record.status !== "running" || (notified_at === undefined && (drain?.notify ?? null) === null))
      return "over" as const
    if (drain === undefined) return yield* steps.cancel(migration)
    if (notified_at === undefined) return yield* steps.notify(migration, drain.notify ?? "")
    const stopAt = Date.parse(notified_at) + noticeMillis(drain.notify_seconds)
    return (yield* Clock.currentTimeMillis) < stopAt ? ("again" as const) : ("over" as const)
  })

  const leave = Effect.fnUntraced(function* (record: ServerRecord, migration: Migration) {
    const placement = yield* destinations.find(record)
    if (placement === undefined) return yield* steps.cancel(migration)
    // The node may be lost or drained by now. The server still runs, so there is time to choose again.
    const node = yield* Effect.option(registry.get(placement.node_id))
    if (Option.getOrUndefined(node)?.connected !== true) {
      yield* destinations.release(record.id)
      return "again" as const
    }
    const notice = yield* giveNotice(record, migration)
    if (notice !== "over") return notice
    const result = yield* steps.leave(record, migration, placement)
    if (result === "port-taken") yield* destinations.releaseAndAvoidPorts(record.id)
    if (result === "refused") yield* destinations.release(record.id)
    if (result === "port-taken" || result === "refused") yield* journal.catchUp
    if (result === "done" || result === "lost") destinations.reached(record.id)
    return result
  })

  return Effect.fnUntraced(function* (id: ServerId) {
    const record = index.get(id)
    const migration = index.migrationOf(id)
    if (record === undefined || !isUnderway(migration) || migration.phase === "arriving") {
      destinations.reached(id)
      return "done"
    }
    if (migration.phase === "returning") yield* destinations.release(id)
    const result = yield* migration.phase === "leaving" ? leave(record, migration) : steps.comeBack(migration)
    return result === "done" || result === "lost" ? "done" : "again"
  })
})
