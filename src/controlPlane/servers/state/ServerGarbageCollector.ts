import { Context, Effect, Layer, Stream } from "effect"
import type { NodeId, ServerId } from "../../../contract/domain/Id.ts"
import { backoff } from "../../../shared/work/backoff.ts"
import { makeKeyedLock } from "../../../shared/work/KeyedLock.ts"
import { makeWorkQueue } from "../../../shared/work/WorkQueue.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { NodeRegistry } from "../../nodes/NodeRegistry.ts"
import { followChanges } from "../../store/journal/Journal.ts"
import { Leadership } from "../../store/Leadership.ts"
import { MigrationRepo, type PendingDeletion } from "../../store/repos/MigrationRepo.ts"
import { Store } from "../../store/Store.ts"
import { ServerLocks, ServersOptions } from "./ServersOptions.ts"

const CALLS = 16

/**
 * Makes nodes delete files of servers that were deleted, migrated away or failed to arrive, on the leader. The
 * database has the pending deletions, and placement skips their nodes.
 */
export class ServerGarbageCollector extends Context.Service<ServerGarbageCollector>()(
  "muster/servers/ServerGarbageCollector",
  {
    make: Effect.gen(function* () {
      const daemons = yield* DaemonClient
      const leadership = yield* Leadership
      const locks = yield* ServerLocks
      const migrations = yield* MigrationRepo
      const nodes = makeKeyedLock<NodeId>(CALLS)
      const options = yield* ServersOptions
      const registry = yield* NodeRegistry
      const store = yield* Store

      const remove = Effect.fnUntraced(function* (deletion: PendingDeletion) {
        const { node_id, server_id } = deletion
        if (!(yield* Effect.isSuccess(registry.get(node_id)))) return "done"
        if (!registry.isConnected(node_id)) return "again"
        // Placement skips a node with a pending deletion. If a record exists in spite of that, it wins.
        const standing = (yield* store.read(migrations.standings(node_id, [server_id]))).get(server_id)
        if (standing?.kept !== true) {
          const daemon = yield* daemons.of(node_id)
          yield* daemon.remove(server_id, { moved: typeof standing?.node_id === "string" })
        }
        yield* store.write(migrations.removeDeletion(deletion))
        return "done"
      })
      const queue = yield* makeWorkQueue({
        name: "deletion",
        fields: ({ node_id, server_id }) => ({ node_id, server_id }),
        step: (deletion: PendingDeletion) =>
          Effect.tapErrorTag(remove(deletion), "DaemonRefused", (error) =>
            Effect.logWarning(`the node refuses to delete the server: ${error.detail}`)
          ),
        backoff: backoff({ first: options.retryFrom, longest: options.retryCap }),
        leadership,
        permit:
          ({ node_id, server_id }) =>
          (effect) =>
            nodes.withLock(node_id)(locks.withLock(server_id)(effect)),
        resume: store.read(migrations.deletions)
      })

      yield* followChanges("controllers", (change) => {
        if (change.topic === "server:left") {
          queue.add({ server_id: change.server_id, node_id: change.payload })
        }
      })
      yield* registry.changes.pipe(
        Stream.filter(({ kind }) => kind === "connected"),
        Stream.runForEach(({ node_id }) =>
          store.read(migrations.deletionsOn(node_id)).pipe(
            Effect.map((deletions) => deletions.forEach(queue.add)),
            Effect.catch((error) =>
              Effect.logDebug(`the deletions of a node wait: ${error.detail}`).pipe(
                Effect.annotateLogs({ node_id })
              )
            )
          )
        ),
        Effect.forkScoped({ startImmediately: true })
      )

      return {
        /** Nodes with a pending deletion of a server, as far as the leader knows. */
        pendingOn: (id: ServerId): ReadonlyArray<NodeId> =>
          [...queue.keys()].flatMap(({ node_id, server_id }) => (server_id === id ? [node_id] : []))
      }
    })
  }
) {
  static readonly layer = Layer.effect(ServerGarbageCollector, ServerGarbageCollector.make)
}
