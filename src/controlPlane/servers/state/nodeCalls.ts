/** Errors of daemons as errors of the application API (spec 9.4). */

import { Effect } from "effect"
import { isUnderway } from "../../../contract/domain/Drain.ts"
import {
  Conflict,
  InvalidRequest,
  NodeFailure,
  NotFound,
  type Unavailable
} from "../../../contract/domain/errors.ts"
import type { ServerId } from "../../../contract/domain/Id.ts"
import type { ServerSpec } from "../../../contract/domain/NodeMessages.ts"
import type { ServerRecord } from "../../../contract/domain/Server.ts"
import type { Daemon, DaemonError, DaemonRefused } from "../../../contract/nodeApi/Daemon.ts"
import { DaemonClient } from "../../nodes/DaemonClient.ts"
import { makeNodeAvailability } from "../../nodes/nodeAvailability.ts"
import { OperationRepo } from "../../store/repos/OperationRepo.ts"
import { Store } from "../../store/Store.ts"
import { ServerIndex } from "../list/ServerIndex.ts"
import { busy, moving, wrongStatus } from "./conflicts.ts"
import { logFields } from "./recordChanges.ts"
import { ServerLifecycle } from "./ServerLifecycle.ts"
import { isFinished } from "./transitions.ts"

/** Returns what a node needs to make a server. */
export const creationOf = (record: ServerRecord) => {
  const { allocations, created_at, definition, id, last_sequence, redefinition } = record
  const defined = redefinition === undefined ? {} : { defined_at: redefinition.defined_at }
  return { id, definition, allocations, last_sequence, created_at, ...defined } satisfies ServerSpec
}

/**
 * Sends a server's definition to its node, unless the record is gone or on another node. Returns the node's view, and
 * whether the record now has that state.
 */
export const makeDeliver = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle

  return Effect.fnUntraced(function* (record: ServerRecord) {
    const { id, node_id, redefinition, run } = record
    const sequence = yield* lifecycle.sequence(node_id, id)
    if (sequence === undefined) return undefined
    const migration = index.migrationOf(id)
    const daemon = yield* daemons.of(node_id)
    const view = yield* daemon.create({
      ...creationOf({ ...record, last_sequence: sequence }),
      ...(run?.stopped_by === undefined ? {} : { stopped_by: run.stopped_by }),
      ...(migration?.phase === "arriving" ? { arrival: migration.arrival } : {}),
      ...(redefinition?.reinstall === true ? { reinstall: true } : {})
    })
    if (redefinition?.delivered === false) yield* lifecycle.delivered(id, redefinition.defined_at)
    return { view, isTaken: yield* lifecycle.observe(node_id, view, sequence) }
  })
})

export const isUnknownToNode = (error: DaemonError): boolean =>
  error._tag === "DaemonRefused" && error.status === 404

export const makeNodeCalls = Effect.gen(function* () {
  const daemons = yield* DaemonClient
  const index = yield* ServerIndex
  const lifecycle = yield* ServerLifecycle
  const { failAway, failWith } = yield* makeNodeErrors

  const recordOf = Effect.fnUntraced(function* (id: ServerId) {
    const record = yield* index.lookUp(id)
    return record ?? (yield* NotFound.server(id))
  })

  /** Fails with a refusal, and the reason if the node is unavailable. */
  const refuse = (
    record: ServerRecord,
    refusal: Conflict | Unavailable
  ): Effect.Effect<never, Conflict | Unavailable> =>
    refusal._tag === "Unavailable" ? failAway(record) : Effect.fail(refusal)

  /** Calls the node. A server that the node has lost is marked for verification. */
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
    if (isUnderway(index.migrationOf(id))) return yield* Effect.fail(moving(id))
  })

  return { call, recordOf, refuse, refuseBusy: yield* makeRefuseBusy, refuseMoving } as const
})

/** Refuses work on a server that an operation has for itself. */
export const makeRefuseBusy = Effect.gen(function* () {
  const operations = yield* OperationRepo
  const store = yield* Store
  return Effect.fnUntraced(function* (id: ServerId) {
    const found = yield* store.read(operations.exclusiveOf(id))
    if (found !== undefined) return yield* Effect.fail(busy(found))
  })
})

export type NodeCallError = NotFound | Conflict | InvalidRequest | NodeFailure | Unavailable

/** Whether the node has lost a server that was installed on it. */
const isLoss = (record: ServerRecord, error: DaemonError): boolean =>
  error._tag === "DaemonRefused" && error.status === 404 && isFinished(record.install)

const ofRefusal = (
  record: ServerRecord,
  { status, detail, hint }: DaemonRefused
): Conflict | InvalidRequest | NodeFailure => {
  switch (status) {
    case 404:
      return isFinished(record.install)
        ? new NodeFailure({
            detail: `node ${record.node_id} does not have server ${record.id}`,
            hint: record.definition.save
              ? "It is being installed again; GET /api/servers/:server/install has the progress."
              : "It is removed: its files are gone."
          })
        : wrongStatus(record)
    case 409:
      return new Conflict({ detail, hint })
    case 422:
      return new InvalidRequest({ detail, hint })
    case 500:
      return new NodeFailure({ detail: `node ${record.node_id}: ${detail}`, hint })
  }
}

export const makeNodeErrors = Effect.gen(function* () {
  const { notConnected, unavailableReason } = yield* makeNodeAvailability
  const failAway = ({ node_id }: ServerRecord, reason?: string) =>
    Effect.flatMap(notConnected(node_id, reason), Effect.fail)
  return {
    unavailableReason,
    failAway,
    failWith: (
      record: ServerRecord,
      error: DaemonError
    ): Effect.Effect<never, Conflict | InvalidRequest | NodeFailure | Unavailable> =>
      error._tag === "NodeUnreachable"
        ? failAway(record, error.reason)
        : Effect.fail(ofRefusal(record, error))
  } as const
})
