import { Clock, Effect, Schedule, type Scope } from "effect"
import type { DaemonRefused } from "../../api/Daemon.ts"
import { isUp } from "../../domain/ServerStatus.ts"
import { END, type LineListener } from "../console/ConsoleLog.ts"
import { appendConsoleLine } from "../console/consoleFiles.ts"
import { type OnlineMatcher, onlineMatcher } from "../console/onlineSignal.ts"
import { type ProcessExit, stopMethod } from "../runtime/exitReason.ts"
import type { ConsoleInputFailed, Run } from "../runtime/Runtime.ts"
import { type Intent, newToken, type RunState, type ServerState, withNotice } from "../state/ServerFile.ts"
import { type LiveRun, openLiveRun, type RunEvent, watchOnlineSignal } from "./LiveRun.ts"
import { type LauncherOptions, makeLauncher } from "./launcher.ts"
import { processEnded, whyGivenUp } from "./processEnded.ts"

export interface ProcessOptions extends LauncherOptions {
  readonly scope: Scope.Scope
  readonly onEvent: (event: RunEvent) => Effect.Effect<void>
}

/** Gets no lines; those who look at the console get them all the same. */
const nobody: LineListener = { wanted: () => false, onLines: () => Effect.void }

/** Exit code of what was given up before it began. */
const KILLED = 137
/** Pause before a server whose engine is away is asked to stop again. */
const ASK_AGAIN = Schedule.spaced(500)
/** Of what a stop may be told to wait, in seconds. */
const LONGEST_STOP = 300

/** Milliseconds until a time of day: no more than there were at first, the clock may have been set since. */
const left = (until: number, seconds: number) =>
  Effect.map(Clock.currentTimeMillis, (now) => Math.min(Math.max(0, until - now), seconds * 1000))

/** The process of one server: every call changes the state first, so that a restart of this service goes on from it. */
export const makeInstanceProcess = (options: ProcessOptions) => {
  const { console, file, folder, onEvent, runtime, scope } = options
  const { id, definition } = file.get().spec
  const { online_signal, start_timeout, stop_command } = definition.process
  const { launch, prepare } = makeLauncher(options)
  let live: LiveRun | undefined

  const status = (value: "running" | "paused" | "stopping") =>
    file.update((state) => withNotice(state, { type: "status", status: value, transient: false }))

  const matcherOf = (): OnlineMatcher | undefined => {
    const found = online_signal === undefined ? undefined : onlineMatcher(online_signal)
    return found !== undefined && "matcher" in found ? found.matcher : undefined
  }

  const watchRun = Effect.fnUntraced(function* (run: Run, token: string, offset: number) {
    const state = file.get()
    const waits = state.status === "starting" && online_signal !== undefined
    const matcher = waits ? matcherOf() : undefined
    live = yield* openLiveRun(
      { server_id: id, token, run, folder, console, offset, matcher, offer: onEvent },
      scope
    )
    const begun = state.run?.started_at ?? (yield* Clock.currentTimeMillis)
    if (waits && run.beginning === undefined)
      yield* live.after(yield* left(begun + start_timeout * 1000, start_timeout), {
        _tag: "StartLate",
        token
      })
    if (state.intent !== null)
      yield* live.after(yield* left(state.intent.deadline, LONGEST_STOP), { _tag: "StopLate", token })
  })

  const say = (text: string) =>
    Effect.catch(appendConsoleLine(folder, text), (error) => Effect.logWarning(error.message))

  const ended = Effect.fnUntraced(function* (exit: ProcessExit) {
    const now = yield* Clock.currentTimeMillis
    const why = whyGivenUp(file.get(), exit, now)
    yield* file.update((state) => processEnded(state, exit, now))
    if (why === undefined) return
    yield* Effect.logWarning(`server ${id} is not started again: ${why}`)
    yield* say(`not started again: ${why}. Correct the cause, then start it`)
  })

  /** Not everybody who has a server started waits for the answer: the reason is in its console, too. */
  const notStarted = Effect.fnUntraced(function* ({ detail, hint }: DaemonRefused) {
    yield* Effect.logWarning(`server ${id} cannot be started: ${detail}`)
    yield* say(`cannot be started: ${detail}. ${hint}`)
  })

  const startWith = Effect.fnUntraced(function* (begin: (state: ServerState, run: RunState) => ServerState) {
    const prepared = yield* prepare
    const { log_offset } = prepared
    const token = newToken()
    const run = { token, started_at: yield* Clock.currentTimeMillis, log_offset, timed_out: false }
    yield* file.update((state) => begin(state, run))
    const started = yield* launch(prepared, token).pipe(
      Effect.tapError(() =>
        Effect.andThen(
          ended({ code: 127, out_of_memory: false }),
          file.update((state) => ({ ...state, start_again: false }))
        )
      )
    )
    yield* watchRun(started, token, log_offset)
    if (online_signal === undefined && started.beginning === undefined) yield* status("running")
  }, Effect.tapError(notStarted))

  const start = startWith((state, run) =>
    withNotice(
      { ...state, run, intent: null, start_again: false },
      { type: "status", status: "starting", transient: false }
    )
  )

  /** A start that was told and then cut off before there was a process is carried out now. */
  const startAfterAll = startWith((state, run) => ({ ...state, run })).pipe(
    Effect.catch(() =>
      file.get().status === "starting" ? ended({ code: 127, out_of_memory: false }) : Effect.void
    )
  )

  /** The second half of a restart; where it cannot be, the end was no mere step on the way and is told again. */
  const startAgain: Effect.Effect<void> = Effect.catch(start, () =>
    Effect.asVoid(
      file.update((state) =>
        withNotice({ ...state, start_again: false }, { type: "status", status: "offline", transient: false })
      )
    )
  )

  /** Sees to it that nothing of the process is left and tells what its end means. */
  const onEnded = Effect.fnUntraced(function* (exit: ProcessExit) {
    const finished = live
    live = undefined
    if (finished !== undefined) {
      yield* finished.run.kill
      const online = yield* finished.close
      const state = file.get()
      if (online && state.status === "starting" && state.intent === null) yield* status("running")
    }
    yield* ended(exit)
    // What has been said of it, for those who look.
    if (finished === undefined) return
    yield* Effect.catch(console.finish(nobody), (error) => Effect.logWarning(error.message))
  })

  const askToStop = Effect.fnUntraced(function* ({ meanwhile, run }: LiveRun) {
    if (run.beginning?.isOver() === false) return yield* run.kill // there is nobody to ask
    const way = stopMethod(stop_command)
    if ("signal" in way) return yield* run.signal(way.signal)
    // A server that cannot be told is killed when its time is over.
    const cannot = ({ message, why }: ConsoleInputFailed) =>
      Effect.logWarning(
        `server ${id} cannot be asked to stop: ${message}${why === "away" ? "; it is as soon as that does" : ""}`
      )
    const write = run.write(way.line)
    const untilTold = Effect.retry(write, { schedule: ASK_AGAIN, while: ({ why }) => why === "away" })
    yield* Effect.catch(write, (error) =>
      error.why === "away"
        ? Effect.andThen(cannot(error), meanwhile(Effect.catch(untilTold, cannot)))
        : cannot(error)
    )
  })

  const unpause = Effect.gen(function* () {
    yield* status("running")
    if (live !== undefined) yield* live.run.resume
  })

  const pause = Effect.gen(function* () {
    yield* status("paused")
    if (live !== undefined) yield* live.run.pause
  })

  /** A reset that was accepted stays one; else the last word counts. */
  const intent = (state: ServerState, type: Intent["type"], deadline: number): Intent => ({
    type: state.intent?.type === "reset" ? "reset" : type,
    deadline: Math.min(deadline, state.intent?.deadline ?? deadline)
  })

  /** Asks the process to end; after the wait it is killed. */
  const end = Effect.fnUntraced(function* (type: Intent["type"], wait_seconds: number) {
    const before = file.get().status
    const deadline = (yield* Clock.currentTimeMillis) + wait_seconds * 1000
    if (before === "paused") yield* unpause
    const state = yield* file.update((now) => {
      const asked = { ...now, intent: intent(now, type, deadline) }
      return before === "stopping"
        ? asked
        : withNotice(asked, { type: "status", status: "stopping", transient: false })
    })
    if (live === undefined) return
    if (before !== "stopping") yield* askToStop(live)
    const wait = yield* left(state.intent?.deadline ?? deadline, wait_seconds)
    yield* live.after(wait, { _tag: "StopLate", token: live.token })
  })

  /** Kills it; `accepted` is run once that is certain to happen. */
  const kill = Effect.fnUntraced(function* (accepted: Effect.Effect<void>) {
    if (file.get().status === "paused") yield* unpause
    const now = yield* Clock.currentTimeMillis
    yield* file.update((state) => ({ ...state, intent: intent(state, "kill", now) }))
    yield* accepted
    if (live !== undefined) yield* live.run.kill
  })

  /** The process of a start that had to wait is there: its time runs from now. */
  const began = Effect.fnUntraced(function* (token: string, at: number) {
    const { status: now } = yield* file.update((state) =>
      state.run === null ? state : { ...state, run: { ...state.run, started_at: at } }
    )
    if (live === undefined || now !== "starting") return
    if (online_signal === undefined) yield* status("running")
    else
      yield* live.after(yield* left(at + start_timeout * 1000, start_timeout), { _tag: "StartLate", token })
  })

  const startLate = Effect.gen(function* () {
    if (live === undefined || file.get().status !== "starting") return
    yield* file.update((state) =>
      state.run === null ? state : { ...state, run: { ...state.run, timed_out: true } }
    )
    yield* live.run.kill
  })

  const stopLate = Effect.gen(function* () {
    if (live !== undefined && file.get().intent !== null) yield* live.run.kill
  })

  /** Answers whether the process has ended, so that something may follow. */
  const event = Effect.fnUntraced(function* (what: RunEvent) {
    if (live?.token !== what.token) return false // of a run that is over
    switch (what._tag) {
      case "Online":
        if (file.get().status === "starting") yield* status("running")
        return false
      case "Began":
        yield* began(what.token, what.at)
        return false
      case "StartLate":
        yield* startLate
        return false
      case "StopLate":
        yield* stopLate
        return false
      case "Ended":
        yield* onEnded(what.exit)
        return true
    }
  })

  /** Picks up what an earlier process of this service started, and goes on with what it was about to do. */
  const adopt = Effect.gen(function* () {
    const state = file.get()
    if (!isUp(state.status) || state.run === null) return yield* runtime.sweep(id)
    const { token, log_offset, timed_out } = state.run
    const adopted = yield* runtime.adopt({ server_id: id, token, folder })
    if (adopted._tag === "NeverBegan") {
      const waits = state.status === "starting" && state.intent === null && !timed_out
      return yield* waits ? startAfterAll : ended({ code: KILLED, out_of_memory: false })
    }
    if (adopted._tag === "Ended") {
      const online =
        state.status === "starting" && (yield* watchOnlineSignal(console, log_offset, matcherOf()))
      if (online && state.intent === null && !timed_out) yield* status("running")
      return yield* ended(adopted.exit)
    }
    const { run } = adopted
    // Before its time for that is looked at: it may have come up long ago.
    const online = state.status === "starting" && (yield* watchOnlineSignal(console, log_offset, matcherOf()))
    if (online && state.intent === null && !timed_out) yield* status("running")
    // Output since the start matters only while the online signal is waited for.
    yield* watchRun(run, token, file.get().status === "starting" ? log_offset : END)
    if (timed_out || state.intent?.type === "kill") return yield* run.kill
    if (state.status === "starting" && online_signal === undefined) yield* status("running")
    yield* state.status === "paused" ? run.pause : run.resume
    // It may not have been told yet; a line that comes twice does no harm, a signal might.
    if (state.status === "stopping" && "line" in stopMethod(stop_command) && live !== undefined) {
      yield* askToStop(live)
    }
  })

  /** Ends it without telling anybody. */
  const destroy = Effect.gen(function* () {
    if (live !== undefined) {
      yield* live.run.kill
      yield* live.close
      live = undefined
    }
    yield* runtime.sweep(id)
  })

  return { adopt, destroy, end, event, kill, pause, run: () => live?.run, start, startAgain, unpause }
}
