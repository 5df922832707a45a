import { Schema } from "effect"
import { InstallSteps } from "./InstallStep.ts"
import { ExitCode, NodeText, NodeTime } from "./NodeText.ts"

/** The phase of a server's installation (spec 3.11). */
export const InstallPhase = Schema.Literals(["pending", "installing", "ready", "failed"])
export type InstallPhase = typeof InstallPhase.Type

/** State of a server's installation; times are RFC 3339 in UTC. */
export const InstallState = Schema.Struct({
  phase: InstallPhase,
  exit_code: Schema.optionalKey(ExitCode),
  started_at: NodeTime,
  finished_at: NodeTime,
  failure_reason: Schema.optionalKey(NodeText),
  /** Absent if the installation has no step yet. */
  steps: Schema.optionalKey(InstallSteps)
}).annotate({ identifier: "InstallState" })
export type InstallState = typeof InstallState.Type

/** The way out of an installation that failed because its definition is wrong. */
export const NEW_DEFINITION =
  "correct the software or blueprint, reload, then reinstall the server: POST /api/servers/:server/reinstall"

/** The next step after a failure whose remedy is not known, as a clause. */
export const READ_THE_LOG = `read the install log; if the cause has passed, reinstall; otherwise ${NEW_DEFINITION}`

/** The hint of a refusal because of a failed installation whose remedy is not known. */
export const INSTALL_FAILED_HINT = `Read GET /api/servers/:server/install/logs. If the cause has passed, reinstall the server; otherwise ${NEW_DEFINITION}.`

/** Returns the text of a failure on a node; `next`: the next step, as a clause. */
export const failureText = (what: string, node_id: string, next: string): string =>
  `${what} (node ${node_id}): ${next}`

const failureWithNext = /^(.* \(node [^()]+\)): (.+)$/su

/** Returns the failure of an installation as the parts of an error: the reason for `detail`, the next step for `hint`. */
export const installFailure = ({ exit_code, failure_reason }: InstallState) => {
  const reason = failure_reason ?? `exit code ${exit_code ?? "unknown"}`
  const [, what, next] = failureWithNext.exec(reason) ?? []
  if (what === undefined || next === undefined) return { reason, hint: INSTALL_FAILED_HINT }
  const hint =
    next === READ_THE_LOG ? INSTALL_FAILED_HINT : `${next.charAt(0).toUpperCase()}${next.slice(1)}.`
  return { reason: what, hint }
}

export const withoutSteps = ({ steps, ...install }: InstallState): InstallState => install

export const pendingInstall: InstallState = { phase: "pending" }
