import { Schema } from "effect"
import { ExitCode, NodeText, NodeTime } from "./NodeText.ts"

/** The phase of a server's installation (decisions, `GET .../install`). */
export const InstallPhase = Schema.Literals(["pending", "installing", "ready", "failed"])
export type InstallPhase = typeof InstallPhase.Type

/** State of a server's installation; times are RFC 3339 in UTC. */
export const InstallState = Schema.Struct({
  phase: InstallPhase,
  exit_code: Schema.optionalKey(ExitCode),
  started_at: NodeTime,
  finished_at: NodeTime,
  failure_reason: Schema.optionalKey(NodeText)
}).annotate({ identifier: "InstallState" })
export type InstallState = typeof InstallState.Type

export const pendingInstall: InstallState = { phase: "pending" }
