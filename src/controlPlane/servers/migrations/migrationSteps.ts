/** The steps by which a server leaves its node, or returns to it if the migration fails. */

import { randomUUID } from "node:crypto"
import { Effect, Option } from "effect"
import type { SqlError } from "effect/sql"
import type { Unavailable } from "../../../contract/domain/errors.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { isUnderway, type Migration } from "../../../contract/domain/Migration.ts"
import type { HeldServer } from "../../../contract/domain/NodeMessages.ts"
import { nowText } from "../../../contract/domain/nowText.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { stopTimeoutOf } from "../../../contract/domain/ServerDefinition.ts"
import { isUp } from "../../../contract/domain/ServerStatus.ts"
import type { Daemon, DaemonError } from "../../../contract/nodeApi/Daemon.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import type { Placement } from "../../nodes/LoadBalancer.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { Store, type Transaction } from "../../store/Store.ts"
import { makeMigrationRecords } from "../state/migrationRecords.ts"
import { makeMarkForVerification } from "../state/recordChanges.ts"
import { ServerLifecycle } from "../state/ServerLifecycle.ts"
import { migrationBlocker } from "./migrationProgress.ts"

/**
 * - `done`       no step remains
 * - `again`      a condition does not hold yet
 * - `lost`       the node does not have the server
 * - `port-taken` another server has a port of the placement
 * - `refused`    the server no longer fits on the chosen node
 */
export type StepResult = "done" | "again" | "port-taken" | "refused" | "lost"

type StepError = Unavailable | DaemonError

export const makeMigrationSteps = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const lifecycle = yield* ServerLifecycle
  const migrations = yield* MigrationRepo
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
        const record = Option.getOrUndefined(yield* servers.lock(server_id))
        const migration = Option.getOrUndefined(yield* migrations.find(server_id))
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
        const now = Option.getOrUndefined(yield* servers.lock(record.id))
        if (now === undefined || now.node_id !== record.node_id || migrationBlocker(now) !== undefined)
          return false
        if (Option.isSome(yield* migrations.find(record.id))) return false
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
        const record = Option.getOrUndefined(yield* servers.lock(server_id))
        if (record?.node_id !== node_id) return
        if (isUnderway(Option.getOrUndefined(yield* migrations.find(server_id)))) return
        yield* records.save(record, {
          server_id,
          from_node: node_id,
          phase: "returning",
          arrival: randomUUID(),
          was_up: record.start_pending || (isUp(record.status) && record.status !== "stopping"),
          reason: null,
          origin: null
        })
      })
    )
})
