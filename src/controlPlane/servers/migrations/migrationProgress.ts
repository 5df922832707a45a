/** What a drain would do, and its progress, as the detail of its node shows them. */

import { Effect, Result } from "effect"
import {
  type Drain,
  type DrainPlan,
  isUnderway,
  type MigratingServer,
  type Migration,
  type MigrationProgress,
  MOST_PLANNED
} from "../../../contract/domain/Drain.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { pause } from "../../../shared/work/slices.ts"
import { LoadBalancer } from "../../nodes/LoadBalancer.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { makeNodeAvailability } from "../../nodes/nodeAvailability.ts"
import { placementOf } from "../../nodes/placementChoice.ts"
import { secondReservation } from "../list/reservations.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { ServerGarbageCollector } from "../state/ServerGarbageCollector.ts"

/** Returns what a drain with `move` would do now. Stores and reserves nothing. */
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

const names = (list: ReadonlyArray<string>) => [...new Set(list)].join(", ")

/** Returns why a saved server cannot migrate until an operator changes something, if so. */
export const migrationBlocker = ({ definition, install }: ServerRecord): string | undefined => {
  const volumes = definition.volumes.filter((volume) => volume.mode === "rw").map((volume) => volume.name)
  if (volumes.length > 0) return `it has volumes that are written by others too (rw): ${names(volumes)}`
  const mounts = definition.mounts.filter((mount) => mount.mode === "rw").map((mount) => mount.source)
  if (mounts.length > 0) return `it has mounts that are written by others too (rw): ${names(mounts)}`
  if (install.phase === "failed") return "its installation has failed: reinstall or delete it"
  return undefined
}

/** Returns why a server cannot migrate at the moment, if so. */
export const migrationDelay = ({ install, status }: ServerRecord): string | undefined => {
  if (status === "unknown") return "its node is not connected"
  if (status === "installing" || install.phase !== "ready") return "it is being installed"
  return status === "stopping" ? "it is stopping" : undefined
}

const MOST = 1000

export interface Remains {
  readonly node_id: NodeId
  readonly here: ReadonlyArray<ServerRecord>
  /** Servers that migrate away from it and have not arrived. */
  readonly elsewhere: ReadonlyArray<ServerRecord>
  readonly migrations: ReadonlyMap<ServerId, Migration>
  readonly drain: Drain
  readonly isDrained: (record: ServerRecord) => boolean
  /** By server: the reason that no node was found. */
  readonly unplaced: ReadonlyMap<ServerId, string>
  /** By node: the reason that it cannot be called. */
  readonly away: ReadonlyMap<NodeId, string>
}

const states = { leaving: "stopping", arriving: "transferring", returning: "returning" } as const

const viewOf = (record: ServerRecord, { away, migrations, node_id, unplaced }: Remains): MigratingServer => {
  const server_id = record.id
  const migration = migrations.get(server_id)
  if (isUnderway(migration) && migration.phase !== "failed") {
    const { notified_at } = migration
    const notice =
      migration.phase === "leaving" && notified_at !== undefined
        ? `its console had the line at ${notified_at}`
        : undefined
    const reason = away.get(node_id) ?? away.get(record.node_id) ?? migration.reason ?? notice
    return {
      server_id,
      state: states[migration.phase],
      ...(record.node_id === node_id ? {} : { to: record.node_id }),
      ...(reason === undefined ? {} : { reason })
    }
  }
  const stays = migrationBlocker(record) ?? migration?.reason ?? away.get(node_id)
  if (stays !== undefined) return { server_id, state: "blocked", reason: stays }
  const waits = migrationDelay(record)
  if (waits !== undefined) return { server_id, state: "waiting", reason: waits }
  const nowhere = unplaced.get(server_id)
  return nowhere === undefined
    ? { server_id, state: "waiting" }
    : { server_id, state: "blocked", reason: nowhere }
}

/** Returns the progress without servers that were placed on the node after the drain began. */
export const progressOf = (remains: Remains): MigrationProgress => {
  const { drain, elsewhere, here, isDrained } = remains
  const left = [...here.filter(isDrained), ...elsewhere].toSorted((a, b) => (a.id < b.id ? -1 : 1))
  return {
    left: left.length,
    running_out: here.filter((record) => !record.definition.save).length,
    ...(drain.parallel === null ? {} : { parallel: drain.parallel }),
    ...(drain.deadline_at === null ? {} : { deadline_at: drain.deadline_at }),
    servers: left.slice(0, MOST).map((record) => viewOf(record, remains))
  }
}
