import { Effect, Option } from "effect"
import { DatabaseFull, NotFound, Unavailable } from "../../../contract/domain/errors.ts"
import type { ServerId } from "../../../contract/domain/Id.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { mayUseReserve } from "../../store/disk/DatabaseDisk.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { makeNodeErrors, makeRefuseBusy, type NodeCallError } from "./nodeCalls.ts"
import { type RemoveOptions, ServerLifecycle } from "./ServerLifecycle.ts"
import { ServerLocks } from "./ServerLocks.ts"

const continuesLater = Effect.mapError((error: Unavailable) =>
  error instanceof DatabaseFull ? DatabaseFull.removalBegun() : Unavailable.removalBegun()
)

/** Adds to the error of an unavailable node how to delete the record anyway. */
const mayBeForced = Effect.mapError((error: NodeCallError) =>
  error instanceof Unavailable
    ? new Unavailable({
        detail: error.detail,
        hint: `${error.hint.replace(/\.?$/, ".")} Or send force=true: the record is deleted now, the files once the node is back.`
      })
    : error
)

/**
 * Removes a server on its node, which may keep the files (spec 3.19), then its record and ports in one write. The
 * {@link Provisioner} continues a recorded removal after a crash. `force` deletes the record despite a failed call.
 */
export const makeRemove = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle
  const locks = yield* ServerLocks
  const { failWith } = yield* makeNodeErrors
  const refuseBusy = yield* makeRefuseBusy

  const remove = Effect.fnUntraced(function* (id: ServerId, options: RemoveOptions) {
    if (Option.isNone(yield* index.lookUp(id))) return yield* Effect.fail(NotFound.server(id))
    if (!options.force) yield* refuseBusy(id)
    const begun = yield* lifecycle.beginRemoval(id, options)
    if (begun === undefined) return yield* Effect.fail(NotFound.server(id))
    const { keeps, record } = begun
    const from = yield* daemons.of(record.node_id).pipe(
      Effect.flatMap((daemon) => daemon.remove(id, keeps ? { kept: true } : {})),
      Effect.as(record.node_id),
      Effect.catch((error) =>
        options.force
          ? Effect.succeed(undefined)
          : Effect.andThen(continuesLater(lifecycle.giveUpRemoval(id)), mayBeForced(failWith(record, error)))
      )
    )
    yield* continuesLater(lifecycle.remove(id, from))
  }, Effect.uninterruptible)

  return Effect.fn("ServerManager.remove")((id: ServerId, options: RemoveOptions) =>
    locks.withLock(id)(mayUseReserve(remove(id, options)))
  )
})
