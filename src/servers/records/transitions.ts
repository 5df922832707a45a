/** What a message about a server does to its record: pure rules (decisions, "States"). */
import type { InstallState } from "../../domain/InstallState.ts"
import type { DaemonServer, Report } from "../../domain/NodeMessages.ts"
import type { ServerRecord } from "../../domain/Server.ts"
import type { Crash } from "../../domain/ServerEvent.ts"
import { fits, isUp, type ServerStatus } from "../../domain/ServerStatus.ts"

/** Changes of one record; an absent field changes nothing. */
export interface Transition {
  readonly install?: InstallState
  readonly crash?: Crash
  /** Only where it is another status than the record's. */
  readonly status?: ServerStatus
  readonly clearsStart?: true
  /** The record goes. */
  readonly destroys?: true
  /** The move is not in the transition table: worth a line in the log, the node's view wins all the same. */
  readonly surprising?: true
}

/** What is looked at of a record. */
export type Subject = Pick<ServerRecord, "status" | "install" | "start_pending"> & {
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

const moved = (subject: Subject, to: ServerStatus): Transition => {
  const { status } = subject
  return {
    ...(status === to ? {} : { status: to }),
    ...(fits(status, to) ? {} : { surprising: true }),
    ...(subject.start_pending && isUp(to) ? { clearsStart: true } : {})
  }
}

const installed = (subject: Subject, install: InstallState): Transition =>
  sameInstall(subject.install, install) ? {} : { install }

const destroyed = (subject: Subject): Transition => (subject.definition.save ? {} : { destroys: true })

/**
 * A server that is not saved goes once it has run and is offline for good. An offline that is no step on the way to
 * something else says just that, also of a server that was on such a way; only while an installation is not over
 * it can mean its end.
 */
const ends = (subject: Subject): boolean => isUp(subject.status) || subject.install.phase === "ready"

/** Status of a server whose installation is in a phase; one that was installed before keeps what it has. */
const statusOfPhase = ({ status, install: before }: Subject, install: InstallState): ServerStatus => {
  if (isUp(status)) return status
  if (!isFinished(install)) return "installing"
  return status === "installing" || !isFinished(before) ? "offline" : status
}

/**
 * The `offline` that ends an installation may come in only after the next one was asked for: until the node says that
 * it installs, it tells of the one before.
 */
const isOfBefore = ({ status, install }: Subject, report: Report): boolean =>
  status === "installing" &&
  install.phase === "pending" &&
  report.type === "status" &&
  report.status === "offline" &&
  report.transient

/** What a report of a node does; the caller has seen that it is not a repetition. */
export const onReport = (subject: Subject, report: Report): Transition => {
  switch (report.type) {
    case "crash":
      return { crash: report.crash }
    case "install-status":
      return {
        ...moved(subject, statusOfPhase(subject, report.install)),
        ...installed(subject, report.install)
      }
    case "status":
      if (report.status === "unknown") return { surprising: true }
      if (isOfBefore(subject, report)) return {}
      return {
        ...moved(subject, report.status),
        ...(report.status === "offline" && !report.transient && ends(subject) ? destroyed(subject) : {})
      }
  }
}

/**
 * What a node's present view does; the caller has seen that it is not older than the record. The status
 * `unknown` says nothing.
 */
export const onSnapshot = (subject: Subject, view: Pick<DaemonServer, "status" | "install">): Transition =>
  view.status === "unknown"
    ? installed(subject, view.install)
    : {
        ...moved(subject, view.status),
        ...installed(subject, view.install),
        ...(view.status === "offline" && isUp(subject.status) ? destroyed(subject) : {})
      }

/** What it does that the node has no such server: a saved one is installed again, another one is gone. */
export const onMissing = (subject: Subject): Transition =>
  subject.definition.save || !isFinished(subject.install)
    ? {
        ...(subject.install.phase === "pending" ? {} : { install: { phase: "pending" } }),
        ...(subject.status === "installing" ? {} : { status: "installing" })
      }
    : { ...(subject.status === "offline" ? {} : { status: "offline" }), destroys: true }

/** What it does that the node has been silent for too long. */
export const onNodeLost = (subject: Subject): Transition =>
  subject.status === "unknown" ? {} : { status: "unknown" }

/** What it does that the installation is refused for good. */
export const onInstallRefused = (subject: Subject, install: InstallState): Transition => ({
  ...moved(subject, "offline"),
  ...installed(subject, install)
})

export const changesNothing = (outcome: Transition): boolean =>
  outcome.install === undefined &&
  outcome.crash === undefined &&
  outcome.status === undefined &&
  outcome.clearsStart === undefined &&
  outcome.destroys === undefined
