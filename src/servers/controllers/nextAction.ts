/** The next call that a server needs, by its record: pure rules. */
import type { Change, ServerChange } from "../../domain/Journal.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import { isFinished } from "../records/transitions.ts"

/**
 * - `verify` ask the node whether it has the server, and what it is
 * - `define` send the changed definition
 * - `stop`   send a stop that was accepted while the node was away
 */
export type Action = "nothing" | "install" | "start" | "verify" | "define" | "stop"

/** @param suspected whether there is reason to think that the node has lost it */
export const nextAction = (record: ServerRecord, suspected: boolean): Action => {
  if (!isFinished(record.install)) return "install"
  if (suspected || record.status === "unknown") return "verify"
  if (record.run?.undelivered === true) return "stop"
  if (record.redefinition?.delivered === false) return "define"
  return record.start_pending && record.status === "offline" && record.install.phase === "ready"
    ? "start"
    : "nothing"
}

/** Whether a change can have given its server a {@link Action}. */
export const needsAction = (change: Change): change is ServerChange =>
  change.topic === "server:created" ||
  change.topic === "server:changed" ||
  (change.topic === "server:start-pending" && change.payload) ||
  (change.topic === "server:run" && change.payload?.undelivered === true) ||
  (change.topic === "server:install" &&
    (change.payload.phase === "pending" || change.payload.phase === "ready"))
