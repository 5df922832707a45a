/** Whether a power action is sent to the node: pure rules (spec 3.9). */

import { Conflict, Unavailable } from "../../../contract/domain/errors.ts"
import { installFailure } from "../../../contract/domain/InstallState.ts"
import type { PowerAction } from "../../../contract/domain/NodeMessages.ts"
import { next, type ServerStatus, type Trigger } from "../../../contract/domain/ServerStatus.ts"
import type { ListedServer } from "../list/summary.ts"
import { wrongStatus } from "./conflicts.ts"

interface Rule {
  readonly trigger: Trigger
  readonly done: ReadonlyArray<ServerStatus>
}

const rules: Record<PowerAction, Rule> = {
  // A node unpauses a paused server before a start or stop.
  start: { trigger: "start", done: ["starting", "running", "paused"] },
  stop: { trigger: "stop", done: ["offline", "stopping", "paused"] },
  restart: { trigger: "stop", done: [] },
  kill: { trigger: "ended-as-asked", done: ["offline"] },
  pause: { trigger: "pause", done: ["paused"] },
  unpause: { trigger: "unpause", done: ["running"] }
}

/**
 * - `call`   the node is called
 * - `defer`  the server is started once it is installed
 * - `cancel` such a start is cancelled
 */
type PowerStep = "call" | "defer" | "cancel"

/** Returns the step or the refusal. An action without apparent effect calls the node: the record may lag. */
export const decidePower = (
  record: ListedServer,
  action: PowerAction
): PowerStep | Conflict | Unavailable => {
  const { status, install, start_pending } = record
  const rule = rules[action]
  if (status === "unknown") return Unavailable.nodeNotConnected(record.node_id)
  if (rule.done.includes(status)) return "call"
  // The node knows whether this is part of a reset, after which it starts the server.
  if (action === "start" && status === "stopping") return "call"
  // The node knows whether this is part of a restart, and whether the server is up again.
  if (action === "restart" && (status === "stopping" || record.transient === true)) return "call"
  if (status === "installing") {
    const isReset = install.phase === "ready"
    if (action === "start") return isReset ? "call" : "defer"
    if (action === "stop" || action === "kill") {
      if (start_pending) return "cancel"
      if (isReset) return "call"
    }
  }
  if (action === "start" && status === "offline" && install.phase === "failed") {
    const { hint, reason } = installFailure(install)
    return new Conflict({ detail: `install failed: ${reason}`, hint })
  }
  return next(status, rule.trigger) === undefined ? wrongStatus(record) : "call"
}
