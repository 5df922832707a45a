import { Clock, Effect, Option } from "effect"
import { noticeMillis } from "../../domain/Drain.ts"
import type { ServerId } from "../../domain/Id.ts"
import { isUnderway, type Migration } from "../../domain/Migration.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { ServerIndex } from "../index/ServerIndex.ts"
import type { Destinations } from "./destinations.ts"
import type { Drains } from "./drains.ts"
import { makeMigrationSteps } from "./migrationSteps.ts"

/** Drives the migration of one server: leaves its node, or returns to it. */
export const makeMigrateStep = Effect.fnUntraced(function* (destinations: Destinations, drains: Drains) {
  const index = yield* ServerIndex
  const journal = yield* Journal
  const registry = yield* NodeRegistry
  const steps = yield* makeMigrationSteps

  /** Lets a running server have the line of the drain, and then its time; if the drain ends meanwhile, the server stays. */
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
    // The node may have been lost or drained since; the server still runs, so there is time to choose again.
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
    // From here on the reservation is that of the record.
    if (result === "done" || result === "lost") destinations.reached(record.id)
    return result
  })

  /** Runs the next step of a server's migration. */
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
