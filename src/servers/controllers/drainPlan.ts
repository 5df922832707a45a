import { Effect, Result } from "effect"
import { type DrainPlan, MOST_PLANNED } from "../../domain/Drain.ts"
import type { NodeId, ServerId } from "../../domain/Id.ts"
import { LoadBalancer } from "../../nodes/LoadBalancer.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { makeNodeAvailability } from "../../nodes/nodeAvailability.ts"
import { placementOf } from "../../nodes/placementRequest.ts"
import { pause } from "../../work/slices.ts"
import { secondReservation } from "../index/reservations.ts"
import { ServerIndex } from "../index/ServerIndex.ts"
import { migrationBlocker } from "./canMigrate.ts"
import { ServerGarbageCollector } from "./ServerGarbageCollector.ts"

/** Returns what a drain with `move` would do with the servers of a node now: nothing is stored or reserved. */
export const makeDrainPlan = Effect.gen(function* () {
  const balancer = yield* LoadBalancer
  const collector = yield* ServerGarbageCollector
  const index = yield* ServerIndex
  const registry = yield* NodeRegistry
  const { unavailableReason } = yield* makeNodeAvailability

  return Effect.fn("NodeDrainer.plan")(function* (node_id: NodeId): Effect.fn.Return<DrainPlan> {
    const place = yield* balancer.rehearse(node_id)
    const away = yield* unavailableReason(node_id)
    const all = yield* index.onNode(node_id)
    const saved = all.filter(({ definition }) => definition.save)
    const migrations: Array<DrainPlan["migrations"][number]> = []
    const blocked = new Map<string, Array<ServerId>>()
    for (const record of saved) {
      yield* pause
      const reason = migrationBlocker(record) ?? away
      const placed =
        reason === undefined
          ? Result.mapError(
              place({
                ...placementOf(record),
                server_id: secondReservation(record.id),
                from: node_id,
                except: collector.pendingOn(record.id)
              }),
              ({ detail, hint }) => `${detail}: ${hint}`
            )
          : Result.fail(reason)
      if (Result.isSuccess(placed)) {
        const to = placed.success.node_id
        migrations.push({ server_id: record.id, to, to_name: registry.nameOf(to) })
        continue
      }
      const others = blocked.get(placed.failure) ?? []
      others.push(record.id)
      blocked.set(placed.failure, others)
    }
    return {
      migrations: migrations.slice(0, MOST_PLANNED),
      migrations_total: migrations.length,
      blocked: Array.from(blocked, ([reason, ids]) => ({
        reason,
        total: ids.length,
        server_ids: ids.slice(0, MOST_PLANNED)
      })),
      running_out: all.length - saved.length
    }
  })
})
