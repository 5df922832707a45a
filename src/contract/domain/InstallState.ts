import { Schema } from "effect"
import { ExitCode, NodeCertainTime, NodeText, NodeTime } from "./NodeText.ts"

/** The names of the steps, in their order; an installation has only the steps that it needs. */
export const InstallStepName = Schema.Literals([
  "place",
  "commit",
  "pull",
  "script",
  "warmup",
  "instance",
  "start"
])
export type InstallStepName = typeof InstallStepName.Type

/** A share of the work, 0 to 1. */
const Progress = Schema.Finite.check(Schema.isBetween({ minimum: 0, maximum: 1 }))

/** A step; times are RFC 3339 in UTC. A repeated step has the times of its last attempt. */
export const InstallStep = Schema.Struct({
  name: InstallStepName,
  started_at: NodeCertainTime,
  finished_at: Schema.optionalKey(NodeCertainTime),
  progress: Schema.optionalKey(Progress)
}).annotate({ identifier: "InstallStep" })
export type InstallStep = typeof InstallStep.Type

export type InstallSteps = ReadonlyArray<InstallStep>

/** At most one step of each name. */
export const InstallSteps = Schema.Array(InstallStep).check(
  Schema.isMaxLength(InstallStepName.literals.length),
  Schema.makeFilter((steps) => new Set(steps.map(({ name }) => name)).size === steps.length, {
    expected: "at most one step of each name"
  })
)

export const currentStep = (steps: InstallSteps): InstallStep | undefined =>
  steps.findLast(({ finished_at }) => finished_at === undefined)

/** @param at RFC 3339 */
export const finishSteps = (steps: InstallSteps, at: string): InstallSteps =>
  steps.map(({ progress, ...step }) => (step.finished_at === undefined ? { ...step, finished_at: at } : step))

/** @param at RFC 3339 */
export const beginStep = (steps: InstallSteps, name: InstallStepName, at: string): InstallSteps => [
  ...finishSteps(steps, at).filter((step) => step.name !== name),
  { name, started_at: at }
]

/** Returns the steps with later ones, which replace those of the same name. */
export const mergeSteps = (before: InstallSteps, steps: InstallSteps): InstallSteps => [
  ...before.filter(({ name }) => !steps.some((step) => step.name === name)),
  ...steps
]

/** Returns the steps without progress, which is not durable. */
export const withoutProgress = (steps: InstallSteps): InstallSteps =>
  steps.map(({ progress, ...step }) => step)

export const withProgress = (steps: InstallSteps, progress: number): InstallSteps => {
  const current = currentStep(steps)
  return steps.map((step) => (step === current ? { ...step, progress } : step))
}

/** Whether a step is one of the control plane, before the node has the server. */
export const isOfCreation = ({ name }: InstallStep): boolean => name === "place" || name === "commit"

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
