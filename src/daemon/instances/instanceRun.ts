/** The runs of an instance. Each change writes the state first, so that a restart continues it. */
import { randomUUID } from "node:crypto"
import { Clock, Effect, Exit, Schedule } from "effect"
import { nowText } from "../../contract/domain/nowText.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import type { DaemonRefused } from "../../contract/nodeApi/Daemon.ts"
import { openSpan } from "../../shared/observability/trace.ts"
import { END, noListener } from "../console/ConsoleLog.ts"
import { type OnlineMatcher, onlineMatcher } from "../console/onlineSignal.ts"
import { orWarn } from "../disk/fsio.ts"
import { isInterrupt, killedExit, type ProcessExit, stopMethod } from "../runtime/exitReason.ts"
import { LaunchFailed, type Run } from "../runtime/Runtime.ts"
import {
  type Backoff,
  type InstanceState,
  type StoredRun,
  withoutTurn,
  withProblem,
  withStatusReport,
  withTurn
} from "../state/InstanceState.ts"
import { launch, prepare } from "./launcher.ts"
import { type Ending, type EndOptions, recordEnd, writeEnd, writeLine } from "./processEnded.ts"
import { refusals } from "./refusals.ts"
import { addressWarning } from "./serverWarnings.ts"
import type { Serving } from "./serving.ts"
import {
  askToStop,
  endStart,
  findOnlineSignal,
  INTERRUPT_TIMEOUT,
  type RunEvent,
  type WatchedRun,
  watchRun,
  withStatus
} from "./watchRun.ts"

/** Returns the attempt of a restart after a crash; a start that a caller has requested has none. */
const attemptOf = ({ backoff }: InstanceState) =>
  backoff?.next_at === undefined ? undefined : { attempt: backoff.attempt }

/** A definition that cannot be started is no crash. */
const neverBegan = { never_began: true } as const
const away = { away: true } as const
/** Whether the online signal of a start counts: the process was neither stopped nor killed. */
const isAwaited = ({ intent, run, status }: InstanceState) =>
  status === "starting" && intent === null && run?.timed_out !== true

const withRun =
  (more: Partial<StoredRun>) =>
  (state: InstanceState): InstanceState =>
    state.run === null ? state : { ...state, run: { ...state.run, ...more } }

/** 1, 4, 13, 40 and 121 s after the start. */
const ADDRESS_CHECKS = Schedule.max([Schedule.exponential("1 second", 3), Schedule.recurs(5)])
/** The longest wait of a stop, in seconds. */
const MAX_STOP = 3600

const configurationOf = ({ file }: Serving) => file.get().spec.definition.process

const ended = (it: Serving, exit: ProcessExit, options?: EndOptions) =>
  Effect.andThen(
    endStart(it, Exit.fail(new Error(`exit code ${exit.code}`))),
    Effect.suspend(() => recordEnd(it, exit, options))
  )

const matcherOf = (it: Serving): OnlineMatcher | undefined => {
  const { online_signal } = configurationOf(it)
  const found = online_signal === undefined ? undefined : onlineMatcher(online_signal)
  return found !== undefined && "matcher" in found ? found.matcher : undefined
}

/** Warns once of a server that listens on all addresses; it may bind its ports late. */
const warnOfAddress = ({ file }: Serving, run: Run) =>
  Effect.suspend(() => addressWarning(file.get().spec, run)).pipe(
    Effect.repeat({ until: (found) => found !== undefined, schedule: ADDRESS_CHECKS }),
    Effect.tap((found) =>
      found === undefined || !("detail" in found) ? Effect.void : Effect.logWarning(found.detail)
    ),
    Effect.asVoid
  )

const awaitOnline = (it: Serving, watched: WatchedRun, since: number) => {
  const { start_timeout } = configurationOf(it)
  return watched.at(since + start_timeout * 1000, start_timeout, "StartLate")
}

/** Watches a process from an offset of its console, with the timeouts of its start and stop. */
const follow = Effect.fnUntraced(function* (it: Serving, run: Run, token: string, offset: number) {
  const { file, folder, onEvent, scope } = it
  const console = it.console()
  const state = file.get()
  const awaitsOnline = state.status === "starting" && configurationOf(it).online_signal !== undefined
  const matcher = awaitsOnline ? matcherOf(it) : undefined
  const live = yield* watchRun({ token, run, folder, console, offset, matcher, offer: onEvent }, scope)
  it.live = live
  const begun = state.run?.started_at ?? (yield* Clock.currentTimeMillis)
  if (awaitsOnline && run.beginning === undefined) yield* awaitOnline(it, live, begun)
  yield* live.inBackground(warnOfAddress(it, run))
  if (state.intent !== null) yield* live.at(state.intent.deadline, MAX_STOP, "StopLate")
})

const noteProblem = Effect.fnUntraced(function* ({ file }: Serving, refused: DaemonRefused) {
  const now = yield* nowText
  yield* file.update((state) => withProblem(state, refused, now))
})

/** Writes the reason to the console as well, because a start may have no caller that waits. */
const notStarted = Effect.fnUntraced(function* (it: Serving, { detail, hint }: DaemonRefused) {
  yield* endStart(it, Exit.fail(new Error(detail)))
  yield* Effect.logWarning(`the server cannot be started: ${detail}`)
  yield* writeLine(it, `cannot be started: ${detail}. ${hint}`)
})

/** @param onRefused runs if the start is refused before its run is recorded */
const startWith = Effect.fnUntraced(
  function* (
    it: Serving,
    begin: (state: InstanceState, run: StoredRun) => InstanceState,
    onRefused: Effect.Effect<unknown> = Effect.void
  ) {
    const { file } = it
    it.startSpan = yield* openSpan("server.start", { server_id: file.get().spec.id })
    const prepared = yield* prepare(it).pipe(
      Effect.tapError((refused) => Effect.andThen(noteProblem(it, refused), onRefused))
    )
    const { log_offset } = prepared
    const token = randomUUID()
    const run = { token, started_at: yield* Clock.currentTimeMillis, log_offset, timed_out: false }
    yield* file.update((state) => begin(state, run))
    const started = yield* launch(it, prepared, token).pipe(
      Effect.tapError((refused) => {
        const exit = { code: 127, out_of_memory: false, ...(refused.status === 422 ? neverBegan : {}) }
        return Effect.andThen(noteProblem(it, refused), ended(it, exit, { mayRestart: false }))
      })
    )
    yield* follow(it, started, token, log_offset)
    if (configurationOf(it).online_signal === undefined && started.beginning === undefined)
      yield* withStatus(it, "running")
  },
  (effect, it) => Effect.tapError(effect, (refused) => notStarted(it, refused))
)

const starting =
  (backoff: Backoff | null) =>
  ({ quiesced: _, stopped_by: __, ...state }: InstanceState, run: StoredRun): InstanceState =>
    withStatusReport({ ...withoutTurn(state), run, intent: null, start_again: false, backoff }, "starting")

export const start = (it: Serving) =>
  startWith(
    it,
    starting(null),
    // Transient: the server did not run, so an ephemeral server is not deleted.
    it.file.update((state) => withStatusReport(state, "offline", true))
  )

const offlineWith = ({ file }: Serving, backoff: Backoff | null) =>
  Effect.asVoid(
    file.update((state) =>
      withStatusReport({ ...withoutTurn(state), start_again: false, backoff }, "offline")
    )
  )

export const cancelRestart = (it: Serving) => offlineWith(it, null)

/** Completes a start that was recorded, but interrupted before there was a process. */
const completeStart = (it: Serving) =>
  startWith(it, (state, run) => ({ ...state, run })).pipe(
    Effect.catch(() =>
      it.file.get().status === "starting" ? ended(it, { code: 127, out_of_memory: false }) : Effect.void
    )
  )

const givenUp = ({ detail }: DaemonRefused) => `it cannot be started: ${detail}`

/** Starts the server whose turn has come. With `isLast`, a refusal because of the node's state is final, too. */
export const startWaiting = Effect.fnUntraced(function* (it: Serving, isLast: boolean) {
  const { file } = it
  const attempt = attemptOf(file.get())
  const waitOn = file.update((state) =>
    state.waiting === true ? state : withStatusReport(withTurn(state), "offline")
  )
  yield* startWith(it, starting(attempt ?? null)).pipe(
    Effect.tapError((refused) =>
      refused.status === 500 && !isLast
        ? Effect.asVoid(waitOn)
        : offlineWith(it, { attempt: attempt?.attempt ?? 1, given_up: givenUp(refused) })
    )
  )
})

/** Starts again after a restart or crash; if that fails, reports `offline` as final. */
export const startAgain = Effect.fnUntraced(function* (it: Serving) {
  const attempt = attemptOf(it.file.get())
  yield* Effect.catch(startWith(it, starting(attempt ?? null)), (refused) =>
    offlineWith(it, attempt === undefined ? null : { ...attempt, given_up: givenUp(refused) })
  )
})

const recordExit = Effect.fnUntraced(function* (
  it: Serving,
  exit: ProcessExit,
  ending: Ending,
  how?: EndOptions
) {
  yield* writeEnd(it, exit, ending)
  if (exit.why !== undefined) {
    yield* noteProblem(it, refusals(it.sources).ofNode(new LaunchFailed(exit.why)))
  }
  yield* ended(it, exit, how)
})

/** Kills all remaining processes and records the effect of the end. */
const onEnded = Effect.fnUntraced(function* (it: Serving, finished: WatchedRun, exit: ProcessExit) {
  it.live = undefined
  yield* finished.run.kill
  const online = yield* finished.close
  const state = it.file.get()
  const silent = state.run?.timed_out === true && !finished.hasPrinted()
  if (online && isAwaited(state)) yield* withStatus(it, "running")
  yield* recordExit(it, exit, { stopTimedOut: it.killedLate === finished.token, silent })
  // Delivers the rest of the output to subscribers.
  yield* orWarn(it.console().finish(noListener))
})

/** Restarts the start timeout when the process of a delayed start exists. */
const onBegan = Effect.fnUntraced(function* (it: Serving, live: WatchedRun, at: number) {
  const { status } = yield* it.file.update(withRun({ started_at: at }))
  if (status !== "starting") return
  yield* configurationOf(it).online_signal === undefined
    ? withStatus(it, "running")
    : awaitOnline(it, live, at)
})

/** Handles an event of the run, unless it is of an earlier one; returns whether the run has ended. */
export const onRunEvent = Effect.fnUntraced(function* (it: Serving, event: RunEvent) {
  const { file, live } = it
  if (live?.token !== event.token) return false
  switch (event._tag) {
    case "Online":
      if (isAwaited(file.get())) yield* withStatus(it, "running")
      return false
    case "Began":
      yield* onBegan(it, live, event.at)
      return false
    case "StartLate":
      if (file.get().status !== "starting") return false
      yield* file.update(withRun({ timed_out: true }))
      yield* live.run.kill
      return false
    case "InterruptLate":
      yield* live.run.signal("SIGINT")
      return false
    case "StopLate":
      if (file.get().intent === null) return false
      it.killedLate = live.token
      yield* live.run.kill
      return false
    case "Ended":
      yield* onEnded(it, live, event.exit)
      return true
  }
})

/** Adopts the process of an earlier service and continues its pending change. */
export const adoptProcess = Effect.fnUntraced(function* (it: Serving) {
  const { file, folder, runtime } = it
  const state = file.get()
  const { id } = state.spec
  if (!isUp(state.status) || state.run === null) return yield* runtime.sweep(id)
  const { token, log_offset, timed_out } = state.run
  const adopted = yield* runtime.adopt({ server_id: id, token, folder })
  if (adopted._tag === "NeverBegan") {
    return yield* isAwaited(state) ? completeStart(it) : ended(it, killedExit, away)
  }
  // Checked before the start timeout: the server may have been online for long.
  const online =
    state.status === "starting" && (yield* findOnlineSignal(it.console(), log_offset, matcherOf(it)))
  if (online && isAwaited(state)) yield* withStatus(it, "running")
  if (adopted._tag === "Ended") {
    return yield* recordExit(it, adopted.exit, { stopTimedOut: false, silent: false }, away)
  }
  const { run } = adopted
  // Earlier output only matters while the online signal is awaited.
  yield* follow(it, run, token, file.get().status === "starting" ? log_offset : END)
  if (timed_out || state.intent?.type === "kill") return yield* run.kill
  const { online_signal, stop_command } = configurationOf(it)
  if (state.status === "starting" && online_signal === undefined) yield* withStatus(it, "running")
  yield* state.status === "paused" ? run.pause : run.resume
  // The stop may not have been sent. A repeated line is harmless; a repeated signal may not be.
  if (state.status !== "stopping" || it.live === undefined) return
  if ("line" in stopMethod(stop_command)) yield* askToStop(it, it.live)
  else if (run.interrupt !== undefined && isInterrupt(stop_command)) {
    yield* it.live.after(INTERRUPT_TIMEOUT, "InterruptLate")
  }
})

/** Kills the process without a record of its end, for a server that is removed. */
export const destroyProcess = Effect.fnUntraced(function* (it: Serving) {
  if (it.live !== undefined) {
    yield* it.live.run.kill
    yield* it.live.close
    it.live = undefined
  }
  yield* it.runtime.sweep(it.file.get().spec.id)
})
