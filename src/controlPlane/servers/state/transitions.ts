/** The transitions of a server's record: pure rules (spec 3.5). */
import { isDeepStrictEqual } from "node:util"
import type { CrashDetails } from "../../../contract/domain/CrashRecord.ts"
import {
  beginStep,
  currentStep,
  finishSteps,
  type InstallState,
  isOfCreation,
  withoutProgress
} from "../../../contract/domain/InstallState.ts"
import type { DaemonServer, Report } from "../../../contract/domain/NodeMessages.ts"
import { timeText } from "../../../contract/domain/NodeText.ts"
import type { Problem } from "../../../contract/domain/Problem.ts"
import {
  isRestartPending,
  type RestartState,
  type RunReport,
  type RunState
} from "../../../contract/domain/RunRule.ts"
import type { Redefinition, ServerRecord } from "../../../contract/domain/Server.ts"
import type { Crash } from "../../../contract/domain/ServerEvent.ts"
import { fits, isUp, type ServerStatus } from "../../../contract/domain/ServerStatus.ts"

/** Changes of one record. An absent field changes nothing. */
export interface Transition {
  readonly install?: InstallState
  readonly crash?: Crash
  readonly details?: CrashDetails
  readonly status?: ServerStatus
  readonly clearsStart?: true
  /** A status between the record's and `status`. */
  readonly via?: ServerStatus
  /** Whether this `offline` is between two states. Absent if nothing has changed. */
  readonly transient?: boolean
  readonly restart?: RestartState | null
  readonly run?: RunState | null
  readonly problem?: Problem | null
  /** Only if process and files have another definition than the record says. */
  readonly redefinition?: Redefinition
  /** Why the record is deleted. */
  readonly destroys?: string
  /** Whether its node keeps the files. Only with `destroys`. */
  readonly keeps?: boolean
  /** The change of status is not in the transition table. It is logged, and still applies. */
  readonly surprising?: true
}

export type Subject = Pick<
  ServerRecord,
  "status" | "install" | "start_pending" | "restart" | "run" | "problem" | "redefinition"
> & {
  readonly definition: Pick<ServerRecord["definition"], "save">
}

export const isFinished = (install: InstallState): boolean =>
  install.phase === "ready" || install.phase === "failed"

const sameInstall = (a: InstallState, b: InstallState): boolean =>
  a.phase === b.phase &&
  a.exit_code === b.exit_code &&
  a.started_at === b.started_at &&
  a.finished_at === b.finished_at &&
  a.failure_reason === b.failure_reason

/** Whether the node has started a server before its installation request, which waits for the server's end. */
const startedBefore = ({ status, install }: Subject, to: ServerStatus): boolean =>
  status === "installing" && install.phase === "pending" && fits("offline", to) && isUp(to)

const toStatus = (subject: Subject, to: ServerStatus): Transition => {
  const { status } = subject
  return {
    ...(status === to ? {} : { status: to }),
    ...(fits(status, to)
      ? {}
      : startedBefore(subject, to)
        ? { via: "offline" as const }
        : { surprising: true as const }),
    ...(subject.start_pending && isUp(to) ? { clearsStart: true } : {})
  }
}

/** Returns a reported restart with its time in the contract's form, or null without a valid time. */
const restartOf = (reported: Subject["restart"]): RestartState | null => {
  if (!isRestartPending(reported)) return reported ?? null
  const next_at = timeText(reported.next_at)
  return next_at === undefined ? null : { ...reported, next_at }
}

const restarts = ({ restart: before }: Subject, reported: Subject["restart"]): Transition => {
  const restart = restartOf(reported)
  return isDeepStrictEqual(before ?? null, restart) ? {} : { restart }
}

/** Takes over the reported desired state, except an undelivered stop. */
const desired = ({ run: before }: Subject, reported: RunReport | null | undefined): Transition => {
  const stopped_by = before?.undelivered === true ? before.stopped_by : reported?.stopped_by
  const run: RunState = {
    ...(stopped_by === undefined ? {} : { stopped_by }),
    ...(reported?.waiting === true ? { waiting: true } : {}),
    ...(before?.undelivered === true ? { undelivered: true } : {})
  }
  const after = Object.keys(run).length === 0 ? null : run
  return isDeepStrictEqual(before ?? null, after) ? {} : { run: after }
}

/** Takes over why a start was refused, unless the refusal itself has set the reason. */
export const problems = ({ problem: before = null }: Subject, problem: Problem | null): Transition =>
  before?.code === problem?.code && before?.detail === problem?.detail ? {} : { problem }

/** Adds the control plane's steps to the reported ones. A snapshot reports none. */
const withKnownSteps = ({ install: before }: Subject, install: InstallState): InstallState => {
  const isAnother = isFinished(before) && !isFinished(install)
  const known = (before.steps ?? []).filter((step) => !isAnother || isOfCreation(step))
  const steps =
    install.steps === undefined
      ? known
      : [...known.filter(isOfCreation), ...withoutProgress(install.steps.filter((it) => !isOfCreation(it)))]
  const { finished_at } = install
  if (steps.length === 0) return install
  return { ...install, steps: finished_at === undefined ? steps : finishSteps(steps, finished_at) }
}

const installed = (subject: Subject, reported: InstallState): Transition => {
  const { install: before } = subject
  const install = withKnownSteps(subject, reported)
  const isSame = sameInstall(before, install)
  return isSame && (reported.steps === undefined || isDeepStrictEqual(before.steps, install.steps))
    ? {}
    : { install }
}

/** Returns the step `start`, from the first to the second status after `offline`. `at` is RFC 3339. */
const startStep = ({ install, start_pending }: Subject, to: ServerStatus, at: string): Transition => {
  const { phase, steps } = install
  if (phase !== "ready" || steps === undefined) return {}
  const isStarting = currentStep(steps)?.name === "start"
  if (!isStarting && (!start_pending || !isUp(to))) return {}
  const begun = isStarting ? steps : beginStep(steps, "start", at)
  if (to === "starting") return isStarting ? {} : { install: { ...install, steps: begun } }
  return { install: { ...install, steps: finishSteps(begun, at) } }
}

export const BY_CALLER = "a caller deleted it"
export const EXPIRED = "it had expired"

export const notSaved = (how: string): string => `it is not saved, and ${how}`

const destroyed = (subject: Subject): Transition =>
  subject.definition.save
    ? {}
    : { destroys: notSaved(subject.status === "stopping" ? "was stopped" : "its process ended") }

export const onNodeGivenUp = (subject: Subject): Transition =>
  subject.definition.save ? {} : { destroys: notSaved("its node was away for too long") }

/**
 * Whether a final `offline` ends a server. An unsaved server is deleted once it has run; during an installation
 * without an earlier run, `offline` may only end the installation.
 */
const ends = (subject: Subject): boolean => isUp(subject.status) || subject.install.phase === "ready"

/** Returns the status in a phase of the installation. An installed server keeps its status. */
const statusOfPhase = ({ status, install: before }: Subject, install: InstallState): ServerStatus => {
  if (isUp(status)) return status
  if (!isFinished(install)) return "installing"
  return status === "installing" || !isFinished(before) ? "offline" : status
}

/** Whether an `offline` ends the previous installation: it may arrive until the node reinstalls. */
const isOfBefore = ({ status, install }: Subject, report: Report): boolean =>
  status === "installing" &&
  install.phase === "pending" &&
  report.type === "status" &&
  report.status === "offline" &&
  report.transient

/** Returns whether an `offline` is between two states. A final one that ends a run says nothing new. */
const transience = (
  { install, status }: Subject,
  report: Extract<Report, { readonly type: "status" }>
): Transition => {
  if (report.status !== "offline") return {}
  // A refused start is between no states.
  if (report.transient) {
    // A start may follow a reset.
    const follows = isUp(status) || (status === "installing" && install.phase === "ready")
    return follows && report.problem === undefined ? { transient: true } : {}
  }
  return status === "offline" ? { transient: false } : {}
}

/** Takes over which definition process and files have, by its time `at`. */
const uses = ({ redefinition }: Subject, at: number | undefined): Transition => {
  if (redefinition?.used === undefined || at === undefined) return {}
  const { earlier = [], used: _, ...rest } = redefinition
  if (at === rest.defined_at) return { redefinition: rest }
  const used = earlier.find(({ defined_at }) => defined_at === at)?.definition
  if (used === undefined) return {}
  const later = earlier.filter(({ defined_at }) => defined_at > at)
  return { redefinition: { ...rest, used, ...(later.length === 0 ? {} : { earlier: later }) } }
}

/** Returns the transition of a report that is no repetition. `at` is the time of its receipt, RFC 3339. */
export const onReport = (subject: Subject, report: Report, at: string): Transition => {
  switch (report.type) {
    case "crash":
      return { crash: report.crash, ...(report.details === undefined ? {} : { details: report.details }) }
    case "install-status":
      return {
        ...toStatus(subject, statusOfPhase(subject, report.install)),
        ...installed(subject, report.install),
        ...uses(subject, report.uses)
      }
    case "status":
      if (report.status === "unknown") return { surprising: true }
      if (isOfBefore(subject, report)) return {}
      return {
        ...toStatus(subject, report.status),
        ...startStep(subject, report.status, at),
        ...transience(subject, report),
        ...restarts(subject, report.restart),
        ...desired(subject, report.run),
        ...problems(subject, report.problem ?? null),
        ...uses(subject, report.uses),
        ...(report.status === "offline" && !report.transient && ends(subject) ? destroyed(subject) : {})
      }
  }
}

/** Returns the transition of a snapshot as new as the record. The status `unknown` changes nothing. */
export const onSnapshot = (
  subject: Subject,
  view: Pick<DaemonServer, "status" | "install" | "uses"> & Pick<Subject, "restart" | "run" | "problem">
): Transition =>
  view.status === "unknown"
    ? installed(subject, view.install)
    : {
        ...toStatus(subject, view.status),
        ...restarts(subject, view.restart),
        ...desired(subject, view.run),
        ...problems(subject, view.problem ?? null),
        ...installed(subject, view.install),
        ...uses(subject, view.uses),
        ...(view.status === "offline" && isUp(subject.status) ? destroyed(subject) : {})
      }

/** Returns the transition of a server that its node lacks: a saved one is installed again, others are deleted. */
export const onMissing = (subject: Subject): Transition =>
  subject.definition.save || !isFinished(subject.install)
    ? {
        ...(subject.install.phase === "pending" ? {} : { install: { phase: "pending" } }),
        ...(subject.status === "installing" ? {} : { status: "installing" })
      }
    : {
        ...(subject.status === "offline" ? {} : { status: "offline" }),
        destroys: notSaved("its node does not have it any more")
      }

export const onNodeLost = (subject: Subject): Transition =>
  subject.status === "unknown" ? {} : { status: "unknown" }

export const onInstallRefused = (subject: Subject, install: InstallState): Transition => ({
  ...toStatus(subject, "offline"),
  ...installed(subject, install)
})

export const changesNothing = (outcome: Transition): boolean =>
  outcome.install === undefined &&
  outcome.crash === undefined &&
  outcome.status === undefined &&
  outcome.clearsStart === undefined &&
  outcome.transient === undefined &&
  outcome.restart === undefined &&
  outcome.run === undefined &&
  outcome.problem === undefined &&
  outcome.redefinition === undefined &&
  outcome.destroys === undefined
