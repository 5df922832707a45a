/** What a daemon's failure is to the caller of the application API (decisions, "Management routes"). */
import type { DaemonError } from "../api/Daemon.ts"
import { Conflict, InvalidRequest, NodeFailure, Unavailable } from "../domain/errors.ts"
import type { ServerRecord } from "../domain/Server.ts"
import { isFinished } from "./outcome.ts"
import { wrongStatus } from "./power.ts"

/** Whether the node says that it does not have a server that it ought to have. */
export const isLoss = (record: ServerRecord, error: DaemonError): boolean =>
  error._tag === "DaemonRefused" && error.status === 404 && isFinished(record.install)

export const toApiError = (
  record: ServerRecord,
  error: DaemonError
): Conflict | InvalidRequest | NodeFailure | Unavailable => {
  if (error._tag === "NodeUnreachable") return Unavailable.nodeNotConnected(record.node_id)
  const { status, detail, hint } = error
  switch (status) {
    case 404:
      return isFinished(record.install)
        ? new NodeFailure({
            detail: `node ${record.node_id} does not have server ${record.id}`,
            hint: record.definition.save
              ? "It is being installed again; GET /api/servers/:server/install says how far it is."
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
