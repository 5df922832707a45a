/** The stored state of an instance and its pure changes; `InstanceFile.ts` writes it. Imports `disk` only. */
import { Schema } from "effect"
import type { CrashDetails } from "../../contract/domain/CrashRecord.ts"
import { withImmediate } from "../../contract/domain/compareDefinitions.ts"
import { InstallState, withoutSteps } from "../../contract/domain/InstallState.ts"
import { type DaemonServer, type HeldServer, Report, ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { Problem, problemAfter } from "../../contract/domain/Problem.ts"
import { type RestartState, type RunReport, runRuleOf } from "../../contract/domain/RunRule.ts"
import type { Crash } from "../../contract/domain/ServerEvent.ts"
import { isUp, ServerStatus } from "../../contract/domain/ServerStatus.ts"

/** The request that ends a process; it decides the effect of the end. */
export const Intent = Schema.Struct({
  /** `shutdown`: its daemon ends, and starts it again when it is back. */
  type: Schema.Literals(["stop", "kill", "restart", "reset", "shutdown"]),
  /** The time at which the stop becomes a kill, ms since the epoch. */
  deadline: Schema.Finite,
  /** The time of the first request, ms since the epoch. */
  asked_at: Schema.optionalKey(Schema.Finite)
})
export type Intent = typeof Intent.Type

export const StoredRun = Schema.Struct({
  token: Schema.String,
  started_at: Schema.Finite,
  /** The offset in `console.log` at which its output begins. */
  log_offset: Schema.Int,
  /** Whether the start timed out: the end is then the crash `start timed out`. */
  timed_out: Schema.Boolean
})
export type StoredRun = typeof StoredRun.Type

/** A server that holds still for a backup, until its daemon releases it (spec 12.10). */
const Quiesced = Schema.Struct({
  by: Schema.Literals(["commands", "pause", "stop"]),
  /** The run that holds still; another one needs no release. */
  token: Schema.String,
  /** The lines that release it. */
  after: Schema.Array(Schema.String)
})

/** Work on the files that is pending, also after a crash of the daemon. */
export const FileWork = Schema.Literals(["none", "install", "reinstall", "reset", "upgrade"])
export type FileWork = typeof FileWork.Type

/** The restarts after crashes in a row. */
export const Backoff = Schema.Struct({
  attempt: Schema.Int,
  /** The time of the pending restart, ms since the epoch; only with `start_again`. */
  next_at: Schema.optionalKey(Schema.Finite),
  /** Why the server is not started again. */
  given_up: Schema.optionalKey(Schema.String)
})
export type Backoff = typeof Backoff.Type

/** The durable record of a server. Replacing the whole file writes a change of state and its report together. */
export const InstanceState = Schema.Struct({
  format: Schema.Literal(1),
  /** What process and files have, except values that take effect at once. */
  spec: ServerSpec,
  /** A later definition, which the server gets once it is offline. */
  next: Schema.optionalKey(ServerSpec),
  status: ServerStatus,
  install: InstallState,
  work: FileWork,
  intent: Schema.NullOr(Intent),
  run: Schema.NullOr(StoredRun),
  /** Whether the server is to be started again, by a restart or after a crash. */
  start_again: Schema.Boolean,
  /** Whether the daemon starts the server once its turn has come; see `StartQueue`. */
  waiting: Schema.optionalKey(Schema.Literal(true)),
  /** The caller whose stop holds until the next start. */
  stopped_by: Schema.optionalKey(Schema.String),
  /** Times of the starts after crashes within the last hour, ms since the epoch. */
  restarts: Schema.Array(Schema.Finite),
  /** Null or absent if the server has not crashed since its last start by a caller. */
  backoff: Schema.optionalKey(Schema.NullOr(Backoff)),
  /** Why the last start was refused, or the node has stopped it, until something changes. */
  problem: Schema.optionalKey(Problem),
  /** Whether the server is held for a migration: it is not started, and its files do not change. */
  held: Schema.optionalKey(Schema.Boolean),
  quiesced: Schema.optionalKey(Quiesced),
  /** The uid and gid of its processes and files, unless the daemon's user or an engine runs it. */
  uid: Schema.optionalKey(Schema.Int),
  /** Whether the answer to a request for other ports is missing: another server may have the ports of `spec`. */
  ports_asked: Schema.optionalKey(Schema.Literal(true)),
  sequence: Schema.Int,
  /** Reports that are not acknowledged, oldest first. */
  reports: Schema.Array(Report)
})
export type InstanceState = typeof InstanceState.Type

export const InstanceStateJson = Schema.fromJsonString(InstanceState)

export const newInstanceState = (
  { reinstall: _, stopped_by, ...spec }: ServerSpec,
  uid?: number
): InstanceState => ({
  format: 1,
  spec,
  ...(stopped_by === undefined ? {} : { stopped_by }),
  ...(uid === undefined ? {} : { uid }),
  status: "installing",
  install: { phase: "pending" },
  work: "install",
  intent: null,
  run: null,
  start_again: false,
  restarts: [],
  sequence: spec.last_sequence ?? 0,
  reports: []
})

/** Returns the state of a deleted server that its node gives back: offline, with the ports of `spec`. */
export const restoredState = (state: InstanceState, spec: ServerSpec): InstanceState => {
  const { backoff: _, held: __, ports_asked: ___, problem: ____, waiting: _____, ...rest } = released(state)
  const { allocations, last_sequence = 0 } = spec
  return {
    ...rest,
    spec: { ...state.spec, allocations, last_sequence },
    status: state.work === "none" ? "offline" : "installing",
    intent: null,
    run: null,
    start_again: false,
    restarts: [],
    sequence: Math.max(state.sequence, last_sequence),
    // They are about the time before the deletion.
    reports: []
  }
}

export type ReportBody =
  | { readonly type: "status"; readonly status: ServerStatus; readonly transient: boolean }
  | { readonly type: "install-status"; readonly install: InstallState }
  | { readonly type: "crash"; readonly crash: Crash; readonly details?: CrashDetails }

/** Returns the time of the restart that an offline server waits for, in ms since the epoch. */
export const pendingRestart = ({ backoff, start_again, status }: InstanceState): number | undefined =>
  start_again && status === "offline" ? backoff?.next_at : undefined

export const restartOf = (state: InstanceState): { readonly restart?: RestartState } => {
  const { backoff } = state
  const next_at = pendingRestart(state)
  if (backoff === null || backoff === undefined || state.status !== "offline") return {}
  if (next_at !== undefined) {
    return { restart: { attempt: backoff.attempt, next_at: new Date(next_at).toISOString() } }
  }
  return backoff.given_up === undefined ? {} : { restart: { given_up: true, reason: backoff.given_up } }
}

/** Returns the state of a server that its daemon starts once its turn has come. */
export const withTurn = (state: InstanceState): InstanceState => ({ ...state, waiting: true })

/** Returns the state of a server that its daemon does not start by itself. */
export const withoutTurn = ({ waiting: _, ...state }: InstanceState): InstanceState => state

/** Returns the state of a server that holds still no longer. */
export const released = ({ quiesced: _, ...state }: InstanceState): InstanceState => state

/** Whether a server that was up when its daemon, node or machine ended is started again. */
export const resumes = ({ spec }: InstanceState): boolean => runRuleOf(spec.definition) !== "manual"

const runOf = ({ status, stopped_by, waiting }: InstanceState): { readonly run?: RunReport } => {
  const isWaiting = waiting === true && status === "offline"
  if (stopped_by === undefined && !isWaiting) return {}
  return {
    run: { ...(stopped_by === undefined ? {} : { stopped_by }), ...(isWaiting ? { waiting: true } : {}) }
  }
}

/** Returns the time of a server's definition, unless it is the creation's. */
const usesOf = ({ spec }: InstanceState) => (spec.defined_at === undefined ? {} : { uses: spec.defined_at })

export const newestDefinition = ({ next, spec }: InstanceState): number => (next ?? spec).defined_at ?? 0

/** Returns the state with a later definition; some of its values take effect at once. */
export const withNext = (state: InstanceState, next: ServerSpec): InstanceState => ({
  ...(runRuleOf(next.definition) === "manual" ? withoutTurn(state) : state),
  spec: { ...state.spec, definition: withImmediate(state.spec.definition, next.definition) },
  next
})

/** Returns the state of a server that has got a definition. */
export const withTaken = (state: InstanceState, taken: ServerSpec): InstanceState => {
  const { next, problem: _problem, ...rest } = state
  // The ports stay; a start may have replaced them since.
  const { allocations, arrival, last_sequence } = state.spec
  const { arrival: _, last_sequence: __, reinstall: ___, ...definition } = taken
  const spec: ServerSpec = {
    ...definition,
    allocations,
    ...(arrival === undefined ? {} : { arrival }),
    ...(last_sequence === undefined ? {} : { last_sequence })
  }
  const isLater = next !== undefined && next.defined_at !== taken.defined_at
  return isLater ? withNext({ ...rest, spec }, next) : { ...rest, spec }
}

/** Returns the problem of a server that is or becomes offline, or that its node stops; any other status ends it. */
const problemOf = ({ problem }: InstanceState, status: ServerStatus) =>
  problem === undefined || (status !== "offline" && status !== "stopping") ? {} : { problem }

/** Returns the state with why a start was refused, or why the node stops the server. @param since RFC 3339 */
export const withProblem = (
  state: InstanceState,
  why: Parameters<typeof problemAfter>[1],
  since: string
): InstanceState => {
  const problem = problemAfter(state.problem, why, since)
  return problem === state.problem ? state : { ...state, problem }
}

/** Returns the state with a report added; a status or install report also changes the state. */
export const withReport = (state: InstanceState, body: ReportBody): InstanceState => {
  const sequence = state.sequence + 1
  const identity = { server_id: state.spec.id, sequence }
  const after = body.type === "status" ? { ...state, status: body.status } : state
  const report: Report =
    body.type === "crash"
      ? { ...body, ...identity }
      : body.type === "status"
        ? {
            ...body,
            ...restartOf(after),
            ...problemOf(state, body.status),
            ...runOf(after),
            ...usesOf(state),
            ...identity
          }
        : { ...body, ...usesOf(state), ...identity }
  const next = { ...state, sequence, reports: [...state.reports, report] }
  if (body.type === "status") {
    const { problem: _, ...changed } = next
    return { ...changed, ...problemOf(state, body.status), status: body.status }
  }
  return body.type === "install-status" ? { ...next, install: body.install } : next
}

/** As {@link withReport}, of a status. `transient`: the server is not deleted, though it may not be saved. */
export const withStatusReport = (state: InstanceState, status: ServerStatus, transient = false) =>
  withReport(state, { type: "status", status, transient })

/** Returns the server as registrations and `create` list it; reports alone have the steps of an installation. */
export const daemonServer = (state: InstanceState): DaemonServer => ({
  id: state.spec.id,
  status: state.status,
  install: withoutSteps(state.install),
  unsent_reports: state.reports.length,
  defined_at: newestDefinition(state),
  ...usesOf(state),
  ...(state.held === true ? { held: true } : {}),
  ...problemOf(state, state.status),
  ...restartOf(state),
  ...runOf(state)
})

/** Returns the server as `hold` lists it, with whether it would be up without the hold. */
export const heldServer = (state: InstanceState): HeldServer => {
  const { intent, start_again, status, waiting } = state
  const stays = isUp(status) && status !== "stopping" && intent === null
  return {
    ...daemonServer(state),
    up: stays || intent?.type === "restart" || start_again || waiting === true
  }
}
