/** The changes of migrations to records, each part of one write with its journal entries. */

import { Effect } from "effect"
import type { SqlError } from "effect/sql"
import type { Migration } from "../../../contract/domain/Drain.ts"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { pendingInstall } from "../../../contract/domain/InstallState.ts"
import type { ChangedServer } from "../../../contract/domain/Journal.ts"
import { startsAlways } from "../../../contract/domain/RunRule.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import { LoadBalancer, type Placement } from "../../nodes/LoadBalancer.ts"
import { placementOf } from "../../nodes/placementChoice.ts"
import { CapacityRepo } from "../../store/repos/CapacityRepo.ts"
import { MigrationRepo } from "../../store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../store/repos/ServerRepo.ts"
import { append, type Writing } from "../../store/sql/Transaction.ts"
import type { Transition } from "./transitions.ts"

export const makeMigrationRecords = Effect.gen(function* () {
  const migrations = yield* MigrationRepo
  const servers = yield* ServerRepo
  const rooms = yield* CapacityRepo
  const balancer = yield* LoadBalancer

  const save = Effect.fnUntraced(function* (record: ServerRecord, migration: Migration) {
    yield* migrations.save(migration)
    yield* append({ topic: "server:move", server_id: record.id, payload: migration }, record)
  })

  const forget = Effect.fnUntraced(function* (record: ServerRecord) {
    yield* migrations.remove(record.id)
    yield* append({ topic: "server:move", server_id: record.id, payload: null }, record)
  })

  const placed = (record: ServerRecord) => {
    const { allocations, id: server_id, node_id } = record
    return append({ topic: "server:placed", server_id, payload: { node_id, allocations } }, record)
  }

  const deleteOn = Effect.fnUntraced(function* (
    record: ChangedServer & Pick<ServerRecord, "id">,
    node_id: NodeId
  ): Writing {
    yield* migrations.addDeletion({ server_id: record.id, node_id })
    yield* append({ topic: "server:left", server_id: record.id, payload: node_id }, record)
  })

  const setStartPending = Effect.fnUntraced(function* (record: ServerRecord, pending: boolean) {
    if (record.start_pending === pending) return
    yield* servers.set(record.id, { start_pending: pending })
    yield* append({ topic: "server:start-pending", server_id: record.id, payload: pending }, record)
  })

  const begin = Effect.fnUntraced(function* (record: ServerRecord, arrival: string) {
    const { id: server_id, node_id: from_node, start_pending } = record
    const was_up = start_pending ? true : null
    yield* setStartPending(record, false)
    yield* save(record, {
      server_id,
      from_node,
      phase: "leaving",
      arrival,
      was_up,
      reason: null,
      origin: null
    })
  })

  /** Places an offline server on its new node, which then installs it and fetches its files. */
  const switchNode = Effect.fnUntraced(function* (
    record: ServerRecord,
    migration: Migration,
    placement: Placement
  ) {
    const { allocations, id: server_id, install, last_sequence } = record
    const to = { ...record, ...placement }
    const room = yield* rooms.of(placement.node_id, record.blueprint_id)
    if (balancer.whyNot(placementOf(record), room) !== undefined) return "refused" as const
    if ((yield* migrations.deletionsOf(server_id)).includes(placement.node_id)) return "refused" as const
    if ((yield* migrations.place(to)) === "port-taken") return "port-taken" as const
    yield* placed(to)
    yield* save(record, { ...migration, phase: "arriving", origin: { allocations, install, last_sequence } })
    yield* servers.set(server_id, { install: pendingInstall, status: "installing" })
    yield* append({ topic: "server:install", server_id, payload: pendingInstall }, record)
    yield* append({ topic: "status", server_id, payload: "installing" }, record)
    yield* setStartPending(record, migration.was_up === true || startsAlways(record))
    return "switched" as const
  })

  /** Ends a migration on the old node: starts a server that was up, and keeps the reason of a failure. */
  const end = Effect.fnUntraced(function* (record: ServerRecord, migration: Migration) {
    if (migration.reason === null) yield* forget(record)
    else yield* save(record, { ...migration, phase: "failed", was_up: null })
    yield* setStartPending(record, migration.was_up === true && record.status === "offline")
  })

  return { begin, deleteOn, end, forget, placed, save, setStartPending, switchNode }
})

/** The ends of migrations that reports of the new node cause. */
export const makeArrivals = Effect.gen(function* () {
  const migrations = yield* MigrationRepo
  const servers = yield* ServerRepo
  const { deleteOn, forget, placed, save } = yield* makeMigrationRecords

  /** Ends a migration on the new node: the old one releases the ports and deletes the files. */
  const arrive = Effect.fnUntraced(function* (record: ServerRecord, migration: Migration) {
    yield* migrations.free(record.id, migration.from_node)
    if (record.redefinition !== undefined) {
      const { defined_at } = record.redefinition
      const redefinition = { defined_at, delivered: true }
      yield* servers.set(record.id, { redefinition })
      yield* servers.reserve(record, { ...record, redefinition })
      yield* append({ topic: "server:changed", server_id: record.id, payload: null }, record)
    }
    yield* forget(record)
    yield* deleteOn(record, migration.from_node)
  })

  /** Returns a server to the node that has its files, with the transition of its record. */
  const bringBack = Effect.fnUntraced(function* (record: ServerRecord, migration: Migration, reason: string) {
    const { origin } = migration
    if (origin === null) return {}
    const { allocations, install, last_sequence } = origin
    const back = { ...record, node_id: migration.from_node, allocations, last_sequence }
    yield* migrations.free(record.id, record.node_id)
    yield* migrations.putBack(back)
    yield* placed(back)
    yield* save(record, {
      ...migration,
      phase: "returning",
      was_up: record.start_pending,
      reason,
      origin: null
    })
    yield* deleteOn(record, record.node_id)
    const outcome: Transition = {
      install,
      ...(record.status === "offline" ? {} : { status: "offline" }),
      ...(record.start_pending ? { clearsStart: true } : {})
    }
    return outcome
  })

  /**
   * Settles a transition with the server's migration. Returns the transition to apply, and whether the server is
   * back: definitions of the new node say nothing about the old files.
   */
  const settle = Effect.fnUntraced(function* (
    record: ServerRecord,
    decided: Transition,
    migrationOf: (id: ServerId) => Effect.Effect<Migration | undefined, SqlError.SqlError>
  ) {
    const { destroys, install, redefinition } = decided
    const ends = destroys !== undefined || install?.phase === "ready" || install?.phase === "failed"
    const migration = ends || redefinition !== undefined ? yield* migrationOf(record.id) : undefined
    if (migration?.phase !== "arriving") return { outcome: decided, isBack: false }
    if (destroys === undefined && install?.phase === "failed") {
      const reason = install.failure_reason ?? "it could not be installed there"
      return { outcome: yield* bringBack(record, migration, reason), isBack: true }
    }
    if (destroys !== undefined) yield* deleteOn(record, migration.from_node)
    else if (install?.phase === "ready") yield* arrive(record, migration)
    const { redefinition: _, ...others } = decided
    const outcome: Transition = others
    return { outcome, isBack: false }
  })

  return { deleteOn, settle }
})
