import { Context, type Duration, Effect, FiberMap, Layer, Schedule } from "effect"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { Journal } from "../store/Journal.ts"
import { type Leftover, MoveRepo } from "../store/MoveRepo.ts"
import { Store } from "../store/Store.ts"
import { ServerLocks } from "./ServerLocks.ts"

export interface LeftoversOptions {
  /** Delay before the first repetition; it doubles up to 5 s. */
  readonly retryFrom: Duration.Input
}

/** Between two attempts: a node that is back is soon asked, and one that is away costs nothing to ask. */
const LONGEST = "5 seconds"

/**
 * Makes nodes delete the copies of servers that have moved away, or that have not arrived there: until it is done or
 * the node is no longer known, also after a restart. Such a node is not chosen for the server before that.
 */
export class Leftovers extends Context.Service<
  Leftovers,
  {
    /** Nodes that still have a copy of a server to delete. */
    of(server_id: string): ReadonlyArray<string>
  }
>()("muster/servers/Leftovers") {
  static readonly layer = (options: LeftoversOptions) =>
    Layer.effect(
      Leftovers,
      Effect.gen(function* () {
        const daemons = yield* DaemonClient
        const journal = yield* Journal
        const locks = yield* ServerLocks
        const moves = yield* MoveRepo
        const registry = yield* NodeRegistry
        const store = yield* Store
        const left = new Map<string, Set<string>>()
        const fibers = yield* FiberMap.make<string>()
        // Captured here: the context of a writer is none of the work's.
        const run = yield* FiberMap.runtime(fibers)<never>()
        const delays = Schedule.min([Schedule.exponential(options.retryFrom), Schedule.spaced(LONGEST)]).pipe(
          Schedule.jittered
        )

        const isKnown = (node_id: string) => Effect.isSuccess(registry.get(node_id))

        const clear = Effect.fnUntraced(function* ({ node_id, server_id }: Leftover) {
          // Nothing comes back to a node that has a copy to delete; a record that is there all the same counts more.
          const kept = yield* store.read(moves.kept(node_id, [server_id]))
          if (!kept.has(server_id) && (yield* isKnown(node_id))) {
            const daemon = yield* daemons.of(node_id)
            yield* daemon.remove(server_id)
          }
          yield* store.write(moves.cleared({ node_id, server_id }))
          const nodes = left.get(server_id)
          nodes?.delete(node_id)
          if (nodes?.size === 0) left.delete(server_id)
        })

        const add = (leftover: Leftover) => {
          const { node_id, server_id } = leftover
          const nodes = left.get(server_id) ?? new Set()
          left.set(server_id, nodes)
          nodes.add(node_id)
          const work = clear(leftover).pipe(
            locks.withLock(server_id),
            Effect.tapErrorTag("DaemonRefused", (error) =>
              Effect.logWarning(
                `the copy of ${server_id} on node ${node_id} cannot be deleted: ${error.detail}`
              )
            ),
            Effect.retry(delays),
            Effect.catchCause((cause) =>
              Effect.logError(`the copy of ${server_id} on node ${node_id} is left there`, cause)
            )
          )
          run(`${node_id}/${server_id}`, Effect.andThen(Effect.yieldNow, work), { onlyIfMissing: true })
        }

        yield* journal.follow((entries) =>
          Effect.sync(() => {
            for (const { change } of entries) {
              if (change.topic !== "server:left") continue
              add({ server_id: change.server_id, node_id: change.payload })
            }
          })
        )
        for (const leftover of yield* store.read(moves.leftovers)) add(leftover)

        return Leftovers.of({ of: (server_id) => [...(left.get(server_id) ?? [])] })
      })
    )
}
