/** The progress of a drain, as the detail of its node shows it: pure rules. */
import type { Drain } from "../../domain/Drain.ts"
import type { NodeId, ServerId } from "../../domain/Id.ts"
import {
  isUnderway,
  type MigratingServer,
  type Migration,
  type MigrationProgress
} from "../../domain/Migration.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import { migrationBlocker, migrationDelay } from "./canMigrate.ts"

/** Servers that one response lists. */
const MOST = 1000

export interface Remains {
  readonly node_id: NodeId
  /** Servers whose record is on the node. */
  readonly here: ReadonlyArray<ServerRecord>
  /** Servers that migrate away from it and have not arrived. */
  readonly elsewhere: ReadonlyArray<ServerRecord>
  readonly migrations: ReadonlyMap<ServerId, Migration>
  readonly drain: Drain
  /** Whether the drain includes a server. */
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

/** Returns the progress; servers that were placed on the node after the drain began are not part of it. */
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
