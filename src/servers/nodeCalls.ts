import { Effect, Option } from "effect"
import type { Daemon, DaemonError } from "../api/Daemon.ts"
import { type Conflict, NotFound, type Unavailable } from "../domain/errors.ts"
import type { ServerId } from "../domain/Id.ts"
import { isUnderway } from "../domain/Migration.ts"
import type { ServerRecord } from "../domain/Server.ts"
import { DaemonClient } from "../nodes/DaemonClient.ts"
import { ServerIndex } from "./index/ServerIndex.ts"
import { isLoss, makeNodeErrors } from "./records/nodeErrors.ts"
import { isMoving } from "./records/power.ts"
import { logFields } from "./records/recordChanges.ts"
import { ServerLifecycle } from "./records/ServerLifecycle.ts"

export const isUnknownToNode = (error: DaemonError): boolean =>
  error._tag === "DaemonRefused" && error.status === 404

/** The parts of routes that call the node of a server. */
export const makeNodeCalls = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle
  const { failAway, failWith } = yield* makeNodeErrors

  const recordOf = Effect.fnUntraced(function* (id: ServerId) {
    const record = Option.getOrUndefined(yield* index.lookUp(id))
    return record ?? (yield* NotFound.server(id))
  })

  /** Fails with a refusal; that of an unavailable node has the reason. */
  const refuse = (
    record: ServerRecord,
    refusal: Conflict | Unavailable
  ): Effect.Effect<never, Conflict | Unavailable> =>
    refusal._tag === "Unavailable" ? failAway(record) : Effect.fail(refusal)

  /** Calls the node; a server that the node has lost is marked for verification. */
  const call = <A, R>(record: ServerRecord, use: (daemon: Daemon) => Effect.Effect<A, DaemonError, R>) =>
    daemons.of(record.node_id).pipe(
      Effect.flatMap(use),
      Effect.tapError((error) =>
        isLoss(record, error)
          ? Effect.catch(lifecycle.markForVerification([record.id]), (failure) =>
              Effect.logWarning(`the server is lost and cannot be verified: ${failure.detail}`).pipe(
                Effect.annotateLogs(logFields(record))
              )
            )
          : Effect.void
      ),
      Effect.catch((error) => failWith(record, error))
    )

  const refuseMoving = Effect.fnUntraced(function* (id: ServerId) {
    if (isUnderway(index.migrationOf(id))) return yield* Effect.fail(isMoving(id))
  })

  return { call, recordOf, refuse, refuseMoving } as const
})
