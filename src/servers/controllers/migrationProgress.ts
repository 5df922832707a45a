/** What is left to do until a node is empty, as its detail shows it: pure rules. */
import {
  isUnderway,
  type MigratingServer,
  type Migration,
  type MigrationProgress
} from "../../domain/Migration.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import { migrationBlocker, migrationDelay } from "./canMigrate.ts"

/** Servers of one answer. */
const MOST = 1000

export interface Remains {
  readonly node_id: string
  /** Servers whose record is on the node. */
  readonly here: ReadonlyArray<ServerRecord>
  /** Servers that come from it and have not arrived. */
  readonly elsewhere: ReadonlyArray<ServerRecord>
  readonly moves: ReadonlyMap<string, Migration>
  /** Whether a server is one of those that are to leave. */
  readonly leaves: (record: ServerRecord) => boolean
  /** Why no node was found, by server. */
  readonly homeless: ReadonlyMap<string, string>
  /** Why nodes cannot be called, by id; none of them is in the way where they can. */
  readonly away: ReadonlyMap<string, string>
}

const states = { leaving: "stopping", arriving: "transferring", returning: "returning" } as const

const moverOf = (record: ServerRecord, { away, homeless, moves, node_id }: Remains): MigratingServer => {
  const server_id = record.id
  const move = moves.get(server_id)
  if (isUnderway(move) && move.phase !== "failed") {
    const reason = away.get(node_id) ?? away.get(record.node_id) ?? move.reason ?? undefined
    return {
      server_id,
      state: states[move.phase],
      ...(record.node_id === node_id ? {} : { to: record.node_id }),
      ...(reason === undefined ? {} : { reason })
    }
  }
  const stays = migrationBlocker(record) ?? move?.reason ?? away.get(node_id)
  if (stays !== undefined) return { server_id, state: "blocked", reason: stays }
  const waits = migrationDelay(record)
  if (waits !== undefined) return { server_id, state: "waiting", reason: waits }
  const nowhere = homeless.get(server_id)
  return nowhere === undefined
    ? { server_id, state: "waiting" }
    : { server_id, state: "blocked", reason: nowhere }
}

/** Servers that were placed on the node after it was to be emptied are none of it. */
export const progressOf = (remains: Remains): MigrationProgress => {
  const { elsewhere, here, leaves } = remains
  const left = [...here.filter(leaves), ...elsewhere].toSorted((a, b) => (a.id < b.id ? -1 : 1))
  return {
    left: left.length,
    running_out: here.filter((record) => !record.definition.save).length,
    servers: left.slice(0, MOST).map((record) => moverOf(record, remains))
  }
}
