import { Context, type Duration, Effect, FiberMap, Layer, Schedule } from "effect"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { NodeRegistry } from "../nodes/NodeRegistry.ts"
import { MoveRepo } from "../store/MoveRepo.ts"
import { Store } from "../store/Store.ts"
import { ServerLocks } from "./ServerLocks.ts"

export interface TeardownOptions {
  /** Delay before the first repetition; it doubles up to `retryCap`. */
  readonly retryFrom: Duration.Input
  readonly retryCap: Duration.Input
}

/**
 * Removes from nodes what servers without a record left there, until it is done or the node is no longer known.
 * What is not done when the process ends, the answer to the node's next registration does (`delete`).
 */
export class Teardown extends Context.Service<
  Teardown,
  {
    /** Returns at once; a server that is being removed already is not removed twice. */
    remove(node_id: string, server_id: string): Effect.Effect<void>
  }
>()("muster/servers/Teardown") {
  static readonly layer = (options: TeardownOptions) =>
    Layer.effect(
      Teardown,
      Effect.gen(function* () {
        const daemons = yield* DaemonClient
        const registry = yield* NodeRegistry
        const moves = yield* MoveRepo
        const store = yield* Store
        const locks = yield* ServerLocks
        const fibers = yield* FiberMap.make<string>()
        // Captured here: a caller's own context (its transaction, its request) is none of the removal's.
        const run = yield* FiberMap.runtime(fibers)<never>()
        const delays = Schedule.min([
          Schedule.exponential(options.retryFrom),
          Schedule.spaced(options.retryCap)
        ]).pipe(Schedule.jittered)

        const remove = Effect.fnUntraced(function* (node_id: string, server_id: string) {
          const attempt = Effect.gen(function* () {
            // By now it may have come there: then it is not what was left.
            if ((yield* store.read(moves.kept(node_id, [server_id]))).has(server_id)) return
            const daemon = yield* daemons.of(node_id)
            yield* daemon.remove(server_id)
          }).pipe(locks.withLock(server_id))
          yield* attempt.pipe(
            Effect.tapErrorTag("DaemonRefused", (error) =>
              Effect.logWarning(`${server_id} cannot be removed from node ${node_id}: ${error.detail}`)
            ),
            Effect.retry({ schedule: delays, while: () => isKnown(node_id) }),
            Effect.catch(() =>
              Effect.logWarning(`${server_id} is left on node ${node_id}, which is no longer known`)
            )
          )
        })

        const isKnown = (node_id: string) => Effect.isSuccess(registry.get(node_id))

        return Teardown.of({
          remove: (node_id, server_id) =>
            Effect.sync(() => {
              run(`${node_id}/${server_id}`, Effect.andThen(Effect.yieldNow, remove(node_id, server_id)), {
                onlyIfMissing: true
              })
            })
        })
      })
    )
}
