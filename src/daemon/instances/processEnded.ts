import { Clock, Effect } from "effect"
import { DEFAULT_BACKOFF } from "../../contract/domain/Blueprint.ts"
import { CRASH_LINES, crashLines } from "../../contract/domain/CrashRecord.ts"
import { runRuleOf } from "../../contract/domain/RunRule.ts"
import { appendConsoleLine } from "../console/consoleFiles.ts"
import { orWarn } from "../disk/fsio.ts"
import { crashOf, type ProcessExit } from "../runtime/exitReason.ts"
import { type InstanceState, restartOf, resumes, withReport } from "../state/InstanceState.ts"
import type { Serving } from "./serving.ts"

export const writeLine = ({ folder }: Serving, text: string) => orWarn(appendConsoleLine(folder, text))

const lastLines = ({ console }: Serving) =>
  console()
    .page({ page: 1, per_page: CRASH_LINES })
    .pipe(
      Effect.map(({ items }) => crashLines(items)),
      Effect.catch((error) => Effect.as(Effect.logWarning(error.message), []))
    )

export const recordEnd = Effect.fnUntraced(function* (
  it: Serving,
  exit: ProcessExit,
  options: EndOptions = {}
) {
  const { file } = it
  const now = yield* Clock.currentTimeMillis
  const lines = isCrash(file.get(), exit) ? yield* lastLines(it) : []
  const { backoff } = yield* file.update((state) => processEnded(state, exit, now, { ...options, lines }))
  const why = backoff?.given_up
  if (why === undefined) return
  yield* Effect.logWarning(`the server is not started again: ${why}`)
  yield* writeLine(it, `not started again: ${why}. Correct the cause, then start it`)
})

/** Writes the line about an end to the console, before it is recorded. */
export const writeEnd = Effect.fnUntraced(function* (it: Serving, exit: ProcessExit, ending: Ending) {
  const line = endLine(it.file.get(), exit, ending)
  if (line === undefined) return
  if (ending.silent) yield* Effect.logWarning(line)
  yield* writeLine(it, line)
})

const HOUR = 3_600_000

const offline = (state: InstanceState, next: Partial<InstanceState>, transient: boolean): InstanceState =>
  withReport({ ...state, intent: null, run: null, ...next }, { type: "status", status: "offline", transient })

/** Returns the change of a server that was up when its daemon, node or machine ended. */
const turnOf = (state: InstanceState): Partial<InstanceState> => (resumes(state) ? { waiting: true } : {})

/** Returns the state after a requested end: stop, kill, shutdown, or the first half of a restart or reset. */
const endedAsRequested = (state: InstanceState): InstanceState => {
  switch (state.intent?.type) {
    case "restart":
      return offline(state, { start_again: true, backoff: null }, true)
    case "reset":
      return offline(state, { work: "reset", backoff: null }, true)
    case "shutdown":
      return offline(state, { backoff: null, ...turnOf(state) }, false)
    default:
      return offline(state, { backoff: null }, false)
  }
}

/** Returns the restarts after crashes within the hour. A time in the future is from before the clock was set back. */
const recent = ({ restarts }: InstanceState, now: number) =>
  restarts.filter((at) => at > now - HOUR && at <= now)

/** Crash reports that wait for the control plane with their console lines; earlier ones are sent without. */
const REPORTS_WITH_LINES = 3

/** Removes the console lines of all but the last crash reports, so that a long outage does not fill the record. */
const withoutOldLines = (state: InstanceState): InstanceState => {
  const old = state.reports.filter(({ type }) => type === "crash").slice(0, -REPORTS_WITH_LINES)
  return old.length === 0
    ? state
    : {
        ...state,
        reports: state.reports.map((report) =>
          report.type === "crash" && report.details !== undefined && old.includes(report)
            ? { ...report, details: { ...report.details, lines: [] } }
            : report
        )
      }
}

const delayOf = (
  { delay, max_delay }: { readonly delay: number; readonly max_delay: number },
  attempt: number
): number => Math.min(max_delay, delay * 2 ** Math.min(attempt - 1, 30)) * 1000

/** Returns why a server is no longer restarted after a crash, as a clause, if its restarts are used up. */
const restartLimitReason = (state: InstanceState, exit: ProcessExit, now: number): string | undefined => {
  const { max_per_hour } = state.spec.definition.restart
  const times = recent(state, now).length
  if (times < max_per_hour) return undefined
  const { reason } = crashOf(exit, state.run?.timed_out === true, new Date(now))
  const restarts = `${times} ${times === 1 ? "restart" : "restarts"} within the hour`
  return `it crashed (${reason}) after ${restarts}, and restart.max_per_hour is ${max_per_hour}`
}

const restartAfter = (
  state: InstanceState,
  exit: ProcessExit,
  now: number,
  mayRestart: boolean
): Partial<InstanceState> => {
  const { restart } = state.spec.definition
  if (!mayRestart || !restart.on_crash || runRuleOf(state.spec.definition) === "manual")
    return { start_again: false, backoff: null }
  const rule = { ...DEFAULT_BACKOFF, ...restart }
  const wasUpFor = now - (state.run?.started_at ?? now)
  const attempt = (wasUpFor >= rule.reset_after * 1000 ? 0 : (state.backoff?.attempt ?? 0)) + 1
  const given_up = restartLimitReason(state, exit, now)
  if (given_up !== undefined) return { backoff: { attempt, given_up } }
  const backoff = { attempt, next_at: now + delayOf(rule, attempt) }
  return { start_again: true, restarts: [...recent(state, now), now], backoff }
}

const crashed = (
  state: InstanceState,
  exit: ProcessExit,
  now: number,
  { away = false, lines = [], mayRestart = true }: EndedOptions
): InstanceState => {
  const decided = restartAfter(state, exit, now, mayRestart)
  const isDecided = decided.start_again === true || decided.backoff?.given_up !== undefined
  const next = away && !isDecided ? { ...decided, ...turnOf(state) } : decided
  const details = {
    ...(state.run === null ? {} : { started_at: new Date(state.run.started_at).toISOString() }),
    ...restartOf({ ...state, ...next, status: "offline" }),
    lines
  }
  const crash = crashOf(exit, state.run?.timed_out === true, new Date(now))
  const reported = withoutOldLines(withReport(state, { type: "crash", crash, details }))
  return offline(reported, next, next.start_again === true)
}

const isCrash = (state: InstanceState, exit: ProcessExit): boolean => {
  if (state.intent !== null || state.status === "stopping" || exit.never_began === true) return false
  if (exit.with_host === true && state.run?.timed_out !== true) return false
  const clean = exit.code === 0 && state.run?.timed_out !== true && state.status === "running"
  return !(clean && state.spec.definition.process.clean_exit === "stop")
}

export interface EndOptions {
  readonly mayRestart?: boolean
  /** Whether the process ended while there was no daemon. Default false. */
  readonly away?: boolean
}

interface EndedOptions extends EndOptions {
  /** The last console lines, for the report of a crash. */
  readonly lines?: ReadonlyArray<string>
}

/** Returns the state after the end of the process, with its reports. `now`: ms since the epoch. */
export const processEnded = (
  state: InstanceState,
  exit: ProcessExit,
  now: number,
  options: EndedOptions = {}
): InstanceState => {
  if (isCrash(state, exit)) return crashed(state, exit, now, options)
  if (state.intent !== null || state.status === "stopping") return endedAsRequested(state)
  return offline(
    state,
    {
      backoff: null,
      ...(exit.never_began === true ? { start_again: false } : {}),
      ...(options.away === true || exit.with_host === true ? turnOf(state) : {})
    },
    // Transient: the server did not run, so an ephemeral server is not deleted.
    exit.never_began === true
  )
}

export interface Ending {
  readonly stopTimedOut: boolean
  /** Whether the start awaited output and there was none. */
  readonly silent: boolean
}

const SILENT =
  "it printed nothing; a program may hold back its output while that is no terminal: set `terminal: true` in the software"

/** Returns the console's line about an end, given the state before it, if there was a process. */
export const endLine = (state: InstanceState, exit: ProcessExit, ending: Ending): string | undefined => {
  if (exit.never_began === true) return undefined
  const { intent, run, spec } = state
  const { reason } = crashOf(exit, false, new Date(0))
  if (intent?.type === "kill") return "killed as requested"
  if (intent !== null && ending.stopTimedOut) {
    const { asked_at = intent.deadline, deadline } = intent
    return `killed after ${Math.round((deadline - asked_at) / 1000)} s: it had not stopped`
  }
  if (intent !== null || state.status === "stopping") return `stopped as requested: ${reason}`
  if (exit.with_host === true && run?.timed_out !== true) return "ended with its machine or engine"
  if (run?.timed_out !== true) return `ended: ${reason}`
  const { start_timeout, terminal = false } = spec.definition.process
  const late = `ended: start timed out after ${start_timeout} s`
  return ending.silent && !terminal ? `${late}: ${SILENT}` : late
}
