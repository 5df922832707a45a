/** Errors of daemons as errors of the application API (spec 9.4). */
import { Effect } from "effect"
import type { DaemonError, DaemonRefused } from "../../api/Daemon.ts"
import {
  Conflict,
  InvalidRequest,
  NodeFailure,
  type NotFound,
  type Unavailable
} from "../../domain/errors.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import { makeNodeAvailability } from "../../nodes/nodeAvailability.ts"
import { wrongStatus } from "./power.ts"
import { isFinished } from "./transitions.ts"

/** Errors of routes that ask the server's node. */
export type NodeCallError = NotFound | Conflict | InvalidRequest | NodeFailure | Unavailable

/** Whether the node does not have a server that is installed on it. */
export const isLoss = (record: ServerRecord, error: DaemonError): boolean =>
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

/** Makes functions that fail with the error of a call to a node. */
export const makeNodeErrors = Effect.gen(function* () {
  const { notConnected, unavailableReason } = yield* makeNodeAvailability
  /** Fails with 503 and the reason that the node is unavailable. */
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
