import { randomUUID } from "node:crypto"
import { Clock, Effect, Option } from "effect"
import type { SqlError } from "effect/sql"
import { isUnderway, type Migration, noticeMillis } from "../../../contract/domain/Drain.ts"
import type { Unavailable } from "../../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import type { HeldServer } from "../../../contract/domain/NodeMessages.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { stopTimeoutOf } from "../../../contract/domain/ServerDefinition.ts"
import { isUp, staysUp } from "../../../contract/domain/ServerStatus.ts"
import type { Daemon, DaemonError } from "../../../contract/nodeApi/Daemon.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { LoadBalancer, type Placement } from "../../nodes/LoadBalancer.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { placementOf } from "../../nodes/placementChoice.ts"
import { Journal } from "../../store/journal/Journal.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { OperationRepo } from "../../store/repos/OperationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store, type Transaction } from "../../store/Store.ts"
import { secondReservation } from "../list/reservations.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { makeMigrationRecords } from "../state/migrationRecords.ts"
import { makeMarkForVerification } from "../state/recordChanges.ts"
import { ServerGarbageCollector } from "../state/ServerGarbageCollector.ts"
import { ServerLifecycle } from "../state/ServerLifecycle.ts"
import { migrationBlocker } from "./migrationProgress.ts"
import type { Drains } from "./NodeDrainer.ts"

/**
 * - `done`       no step remains
 * - `again`      a condition does not hold yet
 * - `lost`       the node does not have the server
 * - `port-taken` another server has a port of the placement
 * - `refused`    the server no longer fits on the chosen node
 */
type StepResult = "done" | "again" | "port-taken" | "refused" | "lost"

type StepError = Unavailable | DaemonError

/** The steps of a migration: the server leaves its node, and returns to it if the migration fails. */
export const makeMigrationSteps = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const lifecycle = yield* ServerLifecycle
  const migrations = yield* MigrationRepo
  const operations = yield* OperationRepo
  const records = yield* makeMigrationRecords
  const servers = yield* ServerRepo
  const store = yield* Store
  const markForVerification = yield* makeMarkForVerification

  const call = <A>(migration: Migration, use: (daemon: Daemon) => Effect.Effect<A, DaemonError>) =>
    Effect.flatMap(daemons.of(migration.from_node), use)

  /** Changes a server and its migration by their rows; `done` if the migration has another phase or has ended. */
  const change = (
    { arrival, phase, server_id }: Migration,
    decide: (
      record: ServerRecord,
      migration: Migration
    ) => Effect.Effect<StepResult, SqlError.SqlError, Transaction>
  ): Effect.Effect<StepResult, Unavailable> =>
    store.write(
      Effect.gen(function* () {
        const record = yield* servers.lock(server_id)
        const migration = yield* migrations.find(server_id)
        if (record === undefined || migration?.phase !== phase || migration.arrival !== arrival)
          return "done" as const
        return yield* decide(record, migration)
      })
    )

  /**
   * Holds a server on its old node, or ends that. Returns its state there, unless the node lacks it, and the record's
   * sequence for that state.
   */
  const hold = Effect.fnUntraced(function* (migration: Migration, held: boolean) {
    const sequence = yield* lifecycle.sequence(migration.from_node, migration.server_id)
    const view = yield* call(migration, (daemon) => daemon.hold(migration.server_id, held)).pipe(
      Effect.map((it): HeldServer | undefined => it),
      Effect.catchIf(
        (error) => error._tag === "DaemonRefused" && error.status === 404,
        () => Effect.succeed(undefined)
      )
    )
    return { sequence, view }
  })

  /** Ends the migration of a lost server, which the verification installs again. */
  const lost = (migration: Migration) =>
    change(migration, (record) =>
      Effect.as(Effect.andThen(records.forget(record), markForVerification(record.id)), "lost" as const)
    )

  /** Begins the migration of a saved server. Returns false if it cannot migrate now. */
  const begin = (record: ServerRecord, arrival: string): Effect.Effect<boolean, Unavailable> =>
    store.write(
      Effect.gen(function* () {
        const now = yield* servers.lock(record.id)
        if (now === undefined || now.node_id !== record.node_id || migrationBlocker(now) !== undefined)
          return false
        if ((yield* migrations.find(record.id)) !== undefined) return false
        if ((yield* operations.exclusiveOf(record.id)) !== undefined) return false
        // The node may have lost it, so it is verified first.
        if ((yield* servers.suspected).includes(record.id)) return false
        yield* records.begin(now, arrival)
        return true
      })
    )

  const notify = Effect.fnUntraced(function* (
    migration: Migration,
    line: string
  ): Effect.fn.Return<StepResult, StepError> {
    const sent = call(migration, (daemon) => daemon.commands(migration.server_id, [line]))
    yield* Effect.catchTag(sent, "DaemonRefused", () => Effect.void)
    const notified_at = yield* nowText
    return yield* change(migration, (record, now) =>
      Effect.as(records.save(record, { ...now, notified_at }), "again" as const)
    )
  })

  const leave = Effect.fnUntraced(function* (
    { definition }: ServerRecord,
    migration: Migration,
    placement: Placement
  ): Effect.fn.Return<StepResult, StepError> {
    const { sequence, view } = yield* hold(migration, true)
    if (view === undefined) return yield* lost(migration)
    if (migration.was_up === null) {
      yield* change(migration, (record, now) =>
        Effect.as(records.save(record, { ...now, was_up: now.was_up ?? view.up }), "again" as const)
      )
    }
    if (isUp(view.status) && view.status !== "stopping") {
      yield* call(migration, (daemon) => daemon.power(migration.server_id, "stop", stopTimeoutOf(definition)))
      return "again"
    }
    if (view.status !== "offline" || view.unsent_reports > 0) return "again"
    return yield* change(migration, (record, now) => {
      const same = record.last_sequence === sequence && record.status === "offline"
      if (!same || record.node_id !== now.from_node || now.was_up === null) {
        return Effect.succeed<StepResult>("again")
      }
      return Effect.map(records.switchNode(record, now, placement), (outcome) =>
        outcome === "switched" ? "done" : outcome
      )
    })
  })

  const cancel = (migration: Migration) =>
    change(migration, (record, now) =>
      Effect.as(records.save(record, { ...now, phase: "returning" }), "again" as const)
    )

  /** Ends the hold on the old node, and makes a start pending if the server was up. */
  const comeBack = Effect.fnUntraced(function* (
    migration: Migration
  ): Effect.fn.Return<StepResult, StepError> {
    const { sequence, view } = yield* hold(migration, false)
    if (view === undefined) return yield* lost(migration)
    if (view.unsent_reports > 0 || view.status === "stopping") return "again"
    return yield* change(migration, (record, now) =>
      record.last_sequence === sequence && record.status === view.status
        ? Effect.as(records.end(record, now), "done" as const)
        : Effect.succeed("again" as const)
    )
  })

  return { begin, cancel, comeBack, leave, notify } as const
})

/** Releases a server held without a migration, as after a restored backup, and starts it if the record says so. */
export const makeReleaseHeld = Effect.gen(function* () {
  const migrations = yield* MigrationRepo
  const records = yield* makeMigrationRecords
  const servers = yield* ServerRepo
  const store = yield* Store

  return (node_id: NodeId, server_id: ServerId): Effect.Effect<void, Unavailable> =>
    store.write(
      Effect.gen(function* () {
        const record = yield* servers.lock(server_id)
        if (record?.node_id !== node_id) return
        if (isUnderway(yield* migrations.find(server_id))) return
        yield* records.save(record, {
          server_id,
          from_node: node_id,
          phase: "returning",
          arrival: randomUUID(),
          was_up: staysUp(record),
          reason: null,
          origin: null
        })
      })
    )
})

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
