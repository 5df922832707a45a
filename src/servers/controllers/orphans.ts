/** Orphans on a node: instances of deleted servers, and instances without a record. */

import { Effect, type Scope } from "effect"
import { named } from "../../domain/errors.ts"
import type { NodeId, ServerId } from "../../domain/Id.ts"
import type { UnknownServer } from "../../domain/NodeMessages.ts"
import { Journal } from "../../store/journal/Journal.ts"
import type { Standing } from "../../store/repos/MigrationRepo.ts"

/** Removals that memory keeps; the oldest are dropped first. */
const MOST = 10_000
/** Servers that one log line names. */
const NAMED = 5

/** The latest removals that nodes have confirmed. */
export interface RecentRemovals {
  /** Whether the server was deleted. */
  isDeleted(server_id: ServerId): boolean
  /** Whether a node had to delete its files of a server. */
  hasLeft(server_id: ServerId, node_id: NodeId): boolean
}

/**
 * Keeps confirmed removals in memory: the snapshot of a node may be older than its last removal. Unconfirmed ones are in
 * the store.
 */
export const recentRemovals: Effect.Effect<RecentRemovals, never, Journal | Scope.Scope> = Effect.gen(
  function* () {
    const journal = yield* Journal
    const keys = new Set<string>()
    const left = (server_id: ServerId, node_id: NodeId) => `${server_id} ${node_id}`
    const remember = (key: string) => {
      keys.delete(key)
      keys.add(key)
      for (const oldest of keys) {
        if (keys.size <= MOST) break
        keys.delete(oldest)
      }
    }
    yield* journal.follow("read-model", (entries) =>
      Effect.sync(() => {
        for (const { change } of entries) {
          if (change.topic === "deleted") remember(change.server_id)
          if (change.topic === "server:left") remember(left(change.server_id, change.payload))
        }
      })
    )
    return {
      isDeleted: (server_id) => keys.has(server_id),
      hasLeft: (server_id, node_id) => keys.has(left(server_id, node_id))
    }
  }
)

/**
 * Sorts the orphans of a node for the answer to its registration. Files of a finished migration are not in it: the
 * {@link ServerGarbageCollector} deletes them.
 */
export const sortOrphans = (options: {
  readonly node_id: NodeId
  readonly listed: ReadonlyArray<ServerId>
  readonly standings: ReadonlyMap<ServerId, Standing>
  readonly removals: RecentRemovals
}) => {
  const { listed, node_id, removals, standings } = options
  const deleted: Array<ServerId> = []
  const unknown: Array<UnknownServer> = []
  for (const id of listed) {
    const standing = standings.get(id)
    const elsewhere = standing?.node_id ?? undefined
    if (standing?.kept === true) continue
    if (elsewhere === undefined && (standing?.owed === true || removals.isDeleted(id))) deleted.push(id)
    else if (elsewhere === undefined) unknown.push({ id })
    else if (standing?.owed !== true && !removals.hasLeft(id, node_id))
      unknown.push({ id, node_id: elsewhere })
  }
  return { delete: deleted, unknown }
}

/** Logs the unknown servers of a node in one line. */
export const warnOfUnknown = (
  node_id: NodeId,
  unknown: ReadonlyArray<UnknownServer>
): Effect.Effect<void> => {
  if (unknown.length === 0) return Effect.void
  const names = unknown.map(({ id, node_id: elsewhere }) =>
    elsewhere === undefined ? id : `${id} (on ${elsewhere} instead)`
  )
  return Effect.logWarning(
    `the database does not have these servers of a node: ${named(names, NAMED)}; the node ends them and keeps the files of those that are saved`
  ).pipe(Effect.annotateLogs({ node_id }))
}
