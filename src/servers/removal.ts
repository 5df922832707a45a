import { Effect, Option } from "effect"
import { DatabaseFull, NotFound, Unavailable } from "../domain/errors.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { mayUseReserve } from "../store/disk/DatabaseDisk.ts"
import { ServerIndex } from "./index/ServerIndex.ts"
import { makeNodeErrors } from "./nodeErrors.ts"
import { ServerLifecycle } from "./records/ServerLifecycle.ts"
import { ServerLocks } from "./records/ServerLocks.ts"

/** Once begun, a write that fails does not undo it. */
const goesOn = Effect.mapError((error: Unavailable) =>
  error instanceof DatabaseFull ? DatabaseFull.removalBegun() : Unavailable.removalBegun()
)

/**
 * Removal of servers: first the node, which may be told twice, then the record and its ports, in one write with
 * the `deleted` event. That it has begun is written down before: after a crash in between the {@link Provisioner}
 * goes on with it, so that nobody finds a server without its files. Once begun it is not interrupted. With `force`
 * the record goes all the same, and the node is told until it has done it.
 */
export const makeRemove = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle
  const locks = yield* ServerLocks
  const { failWith } = yield* makeNodeErrors

  const remove = Effect.fnUntraced(function* (id: string, options: { readonly force: boolean }) {
    if (Option.isNone(yield* index.lookUp(id))) return yield* Effect.fail(NotFound.server(id))
    const record = Option.getOrUndefined(yield* lifecycle.beginRemoval(id))
    if (record === undefined) return yield* Effect.fail(NotFound.server(id))
    const from = yield* daemons.of(record.node_id).pipe(
      Effect.flatMap((daemon) => daemon.remove(id)),
      Effect.as(record.node_id),
      Effect.catch((error) =>
        options.force
          ? Effect.succeed(undefined)
          : Effect.andThen(goesOn(lifecycle.giveUpRemoval(id)), failWith(record, error))
      )
    )
    yield* goesOn(lifecycle.remove(id, from))
  }, Effect.uninterruptible)

  return Effect.fn("ServerManager.remove")((id: string, options: { readonly force: boolean }) =>
    locks.withLock(id)(mayUseReserve(remove(id, options)))
  )
})
