import { randomUUID } from "node:crypto"
import { Clock, Effect, Exit, Schedule, type Scope } from "effect"
import { nowText } from "../../contract/domain/nowText.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import type { DaemonRefused } from "../../contract/nodeApi/Daemon.ts"
import { type OpenSpan, openSpan } from "../../shared/observability/trace.ts"
import { END, type LineListener } from "../console/ConsoleLog.ts"
import { type OnlineMatcher, onlineMatcher } from "../console/onlineSignal.ts"
import { orWarn } from "../disk/fsio.ts"
import { isInterrupt, killedExit, type ProcessExit, stopMethod } from "../runtime/exitReason.ts"
import { LaunchFailed, type Run } from "../runtime/Runtime.ts"
import {
  type Backoff,
  type InstanceState,
  type RunState,
  withoutTurn,
  withProblem,
  withReport,
  withTurn
} from "../state/InstanceState.ts"
import { type LauncherOptions, makeLauncher } from "./launcher.ts"
import { makeRecordEnd } from "./processEnded.ts"
import { refusals } from "./refusals.ts"
import { addressWarning } from "./serverWarnings.ts"
import {
  findOnlineSignal,
  INTERRUPT_TIMEOUT,
  makeProcessStop,
  type RunEvent,
  type WatchedRun,
  watchRun
} from "./watchRun.ts"

export interface ProcessOptions extends LauncherOptions {
  readonly scope: Scope.Scope
  readonly onEvent: (event: RunEvent) => Effect.Effect<void>
}

/** Discards lines; subscribers of the console still get them. */
const noListener: LineListener = { wanted: () => false, onLines: () => Effect.void }

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
  (more: Partial<RunState>) =>
  (state: InstanceState): InstanceState =>
    state.run === null ? state : { ...state, run: { ...state.run, ...more } }

/** 1, 4, 13, 40 and 121 s after the start. */
const ADDRESS_CHECKS = Schedule.max([Schedule.exponential("1 second", 3), Schedule.recurs(5)])
/** The longest wait of a stop, in seconds. */
const MAX_STOP = 3600

/** Manages the runs of an instance. Every operation writes the state first, so that a restart continues it. */
export const makeInstanceRun = (options: ProcessOptions) => {
  const { console, file, folder, onEvent, runtime, scope } = options
  const { id } = file.get().spec
  const configuration = () => file.get().spec.definition.process
  const { launch, prepare } = makeLauncher(options)
  const { ofNode } = refusals(options.sources)
  let live: WatchedRun | undefined
  const { ended: recordEnd, writeEnd, writeLine } = makeRecordEnd(options)
  let killedLate: string | undefined
  let startSpan: OpenSpan | undefined

  const endStart = (exit?: Exit.Exit<unknown, unknown>) =>
    Effect.suspend(() => {
      const span = startSpan
      startSpan = undefined
      return span?.end(exit) ?? Effect.void
    })

  const ended = (exit: ProcessExit, options?: Parameters<typeof recordEnd>[1]) =>
    Effect.andThen(
      endStart(Exit.fail(new Error(`exit code ${exit.code}`))),
      Effect.suspend(() => recordEnd(exit, options))
    )

  const status = (value: "running" | "paused" | "stopping") =>
    file
      .update((state) => withReport(state, { type: "status", status: value, transient: false }))
      .pipe(Effect.tap(() => endStart()))

  const { askToStop, end, kill, pause, unpause } = makeProcessStop({ file, status, live: () => live })

  const matcherOf = (): OnlineMatcher | undefined => {
    const { online_signal } = configuration()
    const found = online_signal === undefined ? undefined : onlineMatcher(online_signal)
    return found !== undefined && "matcher" in found ? found.matcher : undefined
  }

  /** Warns once of a server that listens on all addresses; it may bind its ports late. */
  const warnOfAddress = (run: Run) =>
    Effect.suspend(() => addressWarning(file.get().spec, run)).pipe(
      Effect.repeat({ until: (found) => found !== undefined, schedule: ADDRESS_CHECKS }),
      Effect.tap((found) =>
        found === undefined || !("detail" in found) ? Effect.void : Effect.logWarning(found.detail)
      ),
      Effect.asVoid
    )

  const awaitOnline = (watched: WatchedRun, since: number) => {
    const { start_timeout } = configuration()
    return watched.at(since + start_timeout * 1000, start_timeout, "StartLate")
  }

  const follow = Effect.fnUntraced(function* (run: Run, token: string, offset: number) {
    const state = file.get()
    const awaitsOnline = state.status === "starting" && configuration().online_signal !== undefined
    const matcher = awaitsOnline ? matcherOf() : undefined
    live = yield* watchRun({ token, run, folder, console, offset, matcher, offer: onEvent }, scope)
    const begun = state.run?.started_at ?? (yield* Clock.currentTimeMillis)
    if (awaitsOnline && run.beginning === undefined) yield* awaitOnline(live, begun)
    yield* live.inBackground(warnOfAddress(run))
    if (state.intent !== null) yield* live.at(state.intent.deadline, MAX_STOP, "StopLate")
  })

  const noteProblem = Effect.fnUntraced(function* (refused: DaemonRefused) {
    const now = yield* nowText
    yield* file.update((state) => withProblem(state, refused, now))
  })

  /** Writes the reason to the console as well, because a start may have no caller that waits. */
  const notStarted = Effect.fnUntraced(function* ({ detail, hint }: DaemonRefused) {
    yield* endStart(Exit.fail(new Error(detail)))
    yield* Effect.logWarning(`the server cannot be started: ${detail}`)
    yield* writeLine(`cannot be started: ${detail}. ${hint}`)
  })

  /** @param onRefused runs if the start is refused before its run is recorded */
  const startWith = Effect.fnUntraced(function* (
    begin: (state: InstanceState, run: RunState) => InstanceState,
    onRefused: Effect.Effect<unknown> = Effect.void
  ) {
    startSpan = yield* openSpan("server.start", { server_id: id })
    const prepared = yield* prepare.pipe(
      Effect.tapError((refused) => Effect.andThen(noteProblem(refused), onRefused))
    )
    const { log_offset } = prepared
    const token = randomUUID()
    const run = { token, started_at: yield* Clock.currentTimeMillis, log_offset, timed_out: false }
    yield* file.update((state) => begin(state, run))
    const started = yield* launch(prepared, token).pipe(
      Effect.tapError((refused) =>
        Effect.andThen(
          noteProblem(refused),
          ended(
            { code: 127, out_of_memory: false, ...(refused.status === 422 ? neverBegan : {}) },
            { mayRestart: false }
          )
        )
      )
    )
    yield* follow(started, token, log_offset)
    if (configuration().online_signal === undefined && started.beginning === undefined)
      yield* status("running")
  }, Effect.tapError(notStarted))

  const starting = (
    { stopped_by: _, ...state }: InstanceState,
    run: RunState,
    backoff: Backoff | null
  ): InstanceState =>
    withReport(
      { ...withoutTurn(state), run, intent: null, start_again: false, backoff },
      { type: "status", status: "starting", transient: false }
    )

  const start = startWith(
    (state, run) => starting(state, run, null),
    // Transient: the server did not run, so an ephemeral server is not deleted.
    file.update((state) => withReport(state, { type: "status", status: "offline", transient: true }))
  )

  const offlineWith = (backoff: Backoff | null) =>
    Effect.asVoid(
      file.update((state) =>
        withReport(
          { ...withoutTurn(state), start_again: false, backoff },
          { type: "status", status: "offline", transient: false }
        )
      )
    )

  /** Completes a start that was recorded, but interrupted before there was a process. */
  const completeStart = startWith((state, run) => ({ ...state, run })).pipe(
    Effect.catch(() =>
      file.get().status === "starting" ? ended({ code: 127, out_of_memory: false }) : Effect.void
    )
  )

  /** Starts the server whose turn has come. With `isLast`, a refusal because of the node's state is final, too. */
  const startInTurn = (isLast: boolean) =>
    Effect.suspend(() => {
      const attempt = attemptOf(file.get())
      const waitOn = file.update((state) =>
        state.waiting === true
          ? state
          : withReport(withTurn(state), { type: "status", status: "offline", transient: false })
      )
      return startWith((state, run) => starting(state, run, attempt ?? null)).pipe(
        Effect.tapError(({ detail, status: refused }) =>
          refused === 500 && !isLast
            ? Effect.asVoid(waitOn)
            : offlineWith({ attempt: attempt?.attempt ?? 1, given_up: `it cannot be started: ${detail}` })
        )
      )
    })

  /** Starts again after a restart or crash; if that fails, reports `offline` as final. */
  const startAgain: Effect.Effect<void> = Effect.suspend(() => {
    const attempt = attemptOf(file.get())
    return Effect.catch(
      startWith((state, run) => starting(state, run, attempt ?? null)),
      ({ detail }) =>
        offlineWith(
          attempt === undefined ? null : { ...attempt, given_up: `it cannot be started: ${detail}` }
        )
    )
  })

  const recordExit = Effect.fnUntraced(function* (
    exit: ProcessExit,
    ending: Parameters<typeof writeEnd>[1],
    how?: Parameters<typeof recordEnd>[1]
  ) {
    yield* writeEnd(exit, ending)
    if (exit.why !== undefined) yield* noteProblem(ofNode(new LaunchFailed(exit.why)))
    yield* ended(exit, how)
  })

  /** Kills all remaining processes and records the effect of the end. */
  const onEnded = Effect.fnUntraced(function* (exit: ProcessExit) {
    const finished = live
    live = undefined
    let silent = false
    if (finished !== undefined) {
      yield* finished.run.kill
      const online = yield* finished.close
      const state = file.get()
      silent = state.run?.timed_out === true && !finished.hasPrinted()
      if (online && isAwaited(state)) yield* status("running")
    }
    yield* recordExit(exit, {
      stopTimedOut: finished !== undefined && killedLate === finished.token,
      silent
    })
    // Delivers the rest of the output to subscribers.
    if (finished === undefined) return
    yield* orWarn(console.finish(noListener))
  })

  /** Restarts the start timeout when the process of a delayed start exists. */
  const onBegan = Effect.fnUntraced(function* (at: number) {
    const { status: now } = yield* file.update(withRun({ started_at: at }))
    if (live === undefined || now !== "starting") return
    yield* configuration().online_signal === undefined ? status("running") : awaitOnline(live, at)
  })

  const onStartTimeout = Effect.gen(function* () {
    if (live === undefined || file.get().status !== "starting") return
    yield* file.update(withRun({ timed_out: true }))
    yield* live.run.kill
  })

  const onStopTimeout = Effect.gen(function* () {
    if (live === undefined || file.get().intent === null) return
    killedLate = live.token
    yield* live.run.kill
  })

  const event = Effect.fnUntraced(function* (what: RunEvent) {
    if (live?.token !== what.token) return false // of an earlier run
    switch (what._tag) {
      case "Online":
        if (isAwaited(file.get())) yield* status("running")
        return false
      case "Began":
        yield* onBegan(what.at)
        return false
      case "StartLate":
        yield* onStartTimeout
        return false
      case "InterruptLate":
        yield* live.run.signal("SIGINT")
        return false
      case "StopLate":
        yield* onStopTimeout
        return false
      case "Ended":
        yield* onEnded(what.exit)
        return true
    }
  })

  /** Adopts the process of an earlier service and continues its pending operation. */
  const adopt = Effect.gen(function* () {
    const state = file.get()
    if (!isUp(state.status) || state.run === null) return yield* runtime.sweep(id)
    const { token, log_offset, timed_out } = state.run
    const adopted = yield* runtime.adopt({ server_id: id, token, folder })
    if (adopted._tag === "NeverBegan") {
      const awaitsOnline = state.status === "starting" && state.intent === null && !timed_out
      return yield* awaitsOnline ? completeStart : ended(killedExit, away)
    }
    // Checked before the start timeout: the server may have been online for long.
    const online = state.status === "starting" && (yield* findOnlineSignal(console, log_offset, matcherOf()))
    if (online && state.intent === null && !timed_out) yield* status("running")
    if (adopted._tag === "Ended")
      return yield* recordExit(adopted.exit, { stopTimedOut: false, silent: false }, away)
    const { run } = adopted
    // Earlier output only matters while the online signal is awaited.
    yield* follow(run, token, file.get().status === "starting" ? log_offset : END)
    if (timed_out || state.intent?.type === "kill") return yield* run.kill
    const { online_signal, stop_command } = configuration()
    if (state.status === "starting" && online_signal === undefined) yield* status("running")
    yield* state.status === "paused" ? run.pause : run.resume
    // The stop may not have been sent. A repeated line is harmless; a repeated signal may not be.
    if (state.status !== "stopping" || live === undefined) return
    if ("line" in stopMethod(stop_command)) yield* askToStop(live)
    else if (run.interrupt !== undefined && isInterrupt(stop_command)) {
      yield* live.after(INTERRUPT_TIMEOUT, "InterruptLate")
    }
  })

  const destroy = Effect.gen(function* () {
    if (live !== undefined) {
      yield* live.run.kill
      yield* live.close
      live = undefined
    }
    yield* runtime.sweep(id)
  })

  return {
    adopt,
    cancelRestart: offlineWith(null),
    destroy,
    end,
    event,
    kill,
    pause,
    run: () => live?.run,
    start,
    startAgain,
    startInTurn,
    unpause
  }
}

export type InstanceRun = ReturnType<typeof makeInstanceRun>
