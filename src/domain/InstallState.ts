import { Schema } from "effect"
import { InstallSteps } from "./InstallStep.ts"
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
  failure_reason: Schema.optionalKey(NodeText),
  /** Absent: the installation has no step yet, or an earlier version has written the state. */
  steps: Schema.optionalKey(InstallSteps)
}).annotate({ identifier: "InstallState" })
export type InstallState = typeof InstallState.Type

/** The way out of an installation that failed because its definition is wrong. */
export const NEW_DEFINITION =
  "correct the software or blueprint, reload, then reinstall the server: POST /api/servers/:server/reinstall"

/** The hint of every refusal because of a failed installation. */
export const INSTALL_FAILED_HINT = `Read GET /api/servers/:server/install/logs. If the cause has passed, reinstall the server; otherwise ${NEW_DEFINITION}.`

export const withoutSteps = ({ steps, ...install }: InstallState): InstallState => install

export const pendingInstall: InstallState = { phase: "pending" }
