/** Servers that a node has and is not to have: what was deleted, and what nobody knows. */
import { Effect, type Scope } from "effect"
import type { UnknownServer } from "../../domain/NodeMessages.ts"
import { Journal } from "../../store/journal/Journal.ts"
import type { Standing } from "../../store/repos/MigrationRepo.ts"

/** Removals that are remembered at most; the oldest go first. */
const MOST = 10_000
/** Servers that one log line names. */
const NAMED = 5

/** The removals that nodes have confirmed lately. */
export interface RecentRemovals {
  /** Whether the server was deleted. */
  isDeleted(server_id: string): boolean
  /** Whether a node was told to remove what it had of a server. */
  hasLeft(server_id: string, node_id: string): boolean
}

/**
 * Remembers removals as they happen: a node may have said what it has just before it has removed one of them. What is
 * not confirmed is in the store.
 */
export const recentRemovals: Effect.Effect<RecentRemovals, never, Journal | Scope.Scope> = Effect.gen(
  function* () {
    const journal = yield* Journal
    const keys = new Set<string>()
    const left = (server_id: string, node_id: string) => `${server_id} ${node_id}`
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
 * What the answer to a registration says of them. Copies that were left behind by a move are not in it: `Leftovers` sees
 * to those.
 */
export const sortOrphans = (options: {
  readonly node_id: string
  readonly listed: ReadonlyArray<string>
  readonly standings: ReadonlyMap<string, Standing>
  readonly removals: RecentRemovals
}) => {
  const { listed, node_id, removals, standings } = options
  const deleted: Array<string> = []
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

/** One line for all that a node has and nobody knows. */
export const warnOfUnknown = (
  node_id: string,
  unknown: ReadonlyArray<UnknownServer>
): Effect.Effect<void> => {
  if (unknown.length === 0) return Effect.void
  const named = unknown
    .slice(0, NAMED)
    .map((one) => (one.node_id === undefined ? one.id : `${one.id} (on ${one.node_id} instead)`))
  const more = unknown.length > NAMED ? ` and ${unknown.length - NAMED} more` : ""
  return Effect.logWarning(
    `the database does not have these servers on node ${node_id}: ${named.join(", ")}${more}; the node ends them and keeps the files of those that are saved`
  )
}
