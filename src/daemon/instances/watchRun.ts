/** The watch over a run of an instance, and its stops and pauses. */
import { watch } from "node:fs"
import { Clock, Effect, Exit, Latch, Option, Schedule, Scope } from "effect"
import type { ConsoleLog, LineListener } from "../console/ConsoleLog.ts"
import type { Line } from "../console/lines.ts"
import { type OnlineMatcher, SILENCE } from "../console/onlineSignal.ts"
import { orWarn } from "../disk/fsio.ts"
import { isInterrupt, type ProcessExit, stopMethod } from "../runtime/exitReason.ts"
import type { ConsoleInputFailed, Run } from "../runtime/Runtime.ts"
import { type InstanceState, type Intent, withStatusReport } from "../state/InstanceState.ts"
import type { Serving } from "./serving.ts"

/** The interval between two reads of the console without a change event, in ms. */
const POLL_INTERVAL = 1000
/** The pause after each chunk, in ms, so that a busy server does not starve others. */
const CHUNK_PAUSE = 20
/** The time for a server to stop after the byte of ^C before it gets SIGINT, in ms. */
export const INTERRUPT_TIMEOUT = 5000
/** The longest delay of a timer, in ms. */
const MAX_DELAY = 2_000_000_000

type Late = "StartLate" | "InterruptLate" | "StopLate"

export type RunEvent =
  | { readonly _tag: "Online"; readonly token: string }
  /** The process of a run with a `beginning` has started. `at`: ms since the epoch. */
  | { readonly _tag: "Began"; readonly token: string; readonly at: number }
  | { readonly _tag: "Ended"; readonly token: string; readonly exit: ProcessExit }
  | { readonly _tag: Late; readonly token: string }

/** Returns the milliseconds until a time, at most the original duration, because the clock may have been set since. */
export const remainingMillis = (until: number, seconds: number) =>
  Effect.map(Clock.currentTimeMillis, (now) => Math.min(Math.max(0, until - now), seconds * 1000))

export interface WatchOptions {
  readonly token: string
  readonly run: Run
  readonly folder: string
  readonly console: ConsoleLog
  /** The offset in the console at which reading starts. */
  readonly offset: number
  /** Set while the online signal is awaited. */
  readonly matcher: OnlineMatcher | undefined
  readonly offer: (event: RunEvent) => Effect.Effect<void>
}

/** Opens a latch at every change of the console in the folder. One inotify instance serves all servers. */
const watchFolder = (folder: string, changed: Latch.Latch) =>
  Effect.acquireRelease(
    Effect.try({
      try: () => {
        const watcher = watch(folder, { persistent: false }, (_, name) => {
          if (name === null || name === "console.log") changed.openUnsafe()
        })
        watcher.on("error", () => watcher.close()) // the folder was removed; the interval remains
        return watcher
      },
      catch: (cause) => String(cause)
    }).pipe(
      // For example too many watches: the console is then read once per second.
      Effect.catch((reason) => Effect.as(Effect.logDebug(`cannot watch ${folder}: ${reason}`), undefined))
    ),
    (watcher) => Effect.sync(() => watcher?.close())
  )

/** Whether an ended run was online. If the beginning of its output is lost, it counts as online. */
export const findOnlineSignal = Effect.fnUntraced(function* (
  console: ConsoleLog,
  offset: number,
  matcher: OnlineMatcher | undefined
) {
  if (matcher === undefined) return false
  let seen = false
  const onLines = (lines: ReadonlyArray<Line>) =>
    Effect.sync(() => {
      seen ||= matcher(lines) === true
    })
  const onLost = Effect.sync(() => {
    seen = true
  })
  yield* console.seek(offset).pipe(
    Effect.tap((lost) => (lost ? onLost : Effect.void)),
    Effect.andThen(console.finish({ wanted: () => !seen, onLines, onLost })),
    orWarn
  )
  return seen
})

export const watchRun = Effect.fnUntraced(function* (options: WatchOptions, parent: Scope.Scope) {
  const { console, folder, offer, run, token } = options
  const scope = yield* Scope.fork(parent)
  let matcher = options.matcher
  let seen = false
  let printed = false

  const online = Effect.suspend(() => {
    matcher = undefined
    seen = true
    return offer({ _tag: "Online", token })
  })
  const onLines = Effect.fnUntraced(function* (lines: ReadonlyArray<Line>) {
    if (run.beginning?.isOver() === false) return // the progress of a pull
    printed = true
    const matched = matcher?.(lines)
    if (matched === "too-slow") {
      matcher = undefined
      yield* Effect.logError("the online-signal exceeded its time limit and is no longer matched")
    } else if (matched === true) yield* online
  })
  const onLost = Effect.suspend(() =>
    matcher === undefined
      ? Effect.void
      : Effect.andThen(
          Effect.logWarning("output was lost during the start: the server counts as online"),
          online
        )
  )
  const listener: LineListener = { wanted: () => matcher !== undefined, onLines, onLost }

  const changed = yield* Latch.make(true)
  const follow = Effect.gen(function* () {
    const change = yield* Effect.timeoutOption(changed.await, console.hasOpenLine() ? SILENCE : POLL_INTERVAL)
    yield* changed.close
    let isSilent = Option.isNone(change)
    yield* Effect.suspend(() => console.step(listener, isSilent)).pipe(
      Effect.tap(() => {
        isSilent = false
        return Effect.sleep(CHUNK_PAUSE)
      }),
      Effect.repeat({ while: (more) => more })
    )
  }).pipe(
    Effect.catch((error) => Effect.andThen(Effect.logWarning(error.message), Effect.sleep(POLL_INTERVAL))),
    Effect.forever
  )

  const lost = yield* console
    .seek(options.offset)
    .pipe(Effect.catch((error) => Effect.as(Effect.logWarning(error.message), false)))
  if (lost) yield* onLost
  yield* Scope.provide(watchFolder(folder, changed), scope)
  yield* Effect.forkIn(follow, scope)
  if (run.beginning !== undefined) {
    yield* run.beginning.at.pipe(
      Effect.flatMap((at) => offer({ _tag: "Began", token, at })),
      Effect.forkIn(scope)
    )
  }
  yield* run.ended.pipe(
    Effect.flatMap((exit) => offer({ _tag: "Ended", token, exit })),
    Effect.forkIn(scope)
  )

  const after = (millis: number, event: Late) =>
    Effect.sleep(Math.min(millis, MAX_DELAY)).pipe(
      Effect.andThen(offer({ _tag: event, token })),
      Effect.forkIn(scope),
      Effect.asVoid
    )

  return {
    token,
    run,
    /** Whether lines of output were delivered; only while the online signal is awaited. */
    hasPrinted: () => printed,
    after,
    /** Emits the event at a time, in ms since the epoch, see {@link remainingMillis}. */
    at: (until: number, seconds: number, event: Late) =>
      Effect.flatMap(remainingMillis(until, seconds), (millis) => after(millis, event)),
    inBackground: (effect: Effect.Effect<void>) => Effect.asVoid(Effect.forkIn(effect, scope)),
    /** Stops watching and delivers the rest of the console; returns whether the online signal was seen. */
    close: Scope.close(scope, Exit.void).pipe(
      Effect.andThen(console.finish(listener)),
      orWarn,
      Effect.map(() => seen)
    )
  }
})
export type WatchedRun = Effect.Success<ReturnType<typeof watchRun>>

export const endStart = (it: Serving, exit?: Exit.Exit<unknown, unknown>) =>
  Effect.suspend(() => {
    const span = it.startSpan
    it.startSpan = undefined
    return span?.end(exit) ?? Effect.void
  })

export const withStatus = (it: Serving, status: "running" | "paused") =>
  it.file.update((state) => withStatusReport(state, status)).pipe(Effect.tap(() => endStart(it)))

/** The pause between two attempts to stop a server whose engine is down. */
const STOP_RETRY = Schedule.spaced(500)

/** Returns the new intent: an accepted reset remains, else the latest request wins. */
const intentOf = (state: InstanceState, type: Intent["type"], now: number, wait_seconds: number): Intent => {
  const deadline = now + wait_seconds * 1000
  return {
    type: state.intent?.type === "reset" ? "reset" : type,
    deadline: Math.min(deadline, state.intent?.deadline ?? deadline),
    asked_at: state.intent?.asked_at ?? now
  }
}

/** A server that cannot be asked is killed at its deadline. */
const logNotStopped = ({ message, why }: ConsoleInputFailed) =>
  Effect.logWarning(`the stop command failed: ${message}${why === "away" ? "; retrying" : ""}`)

export const askToStop = Effect.fnUntraced(function* (
  { file }: Serving,
  { after, inBackground, run }: WatchedRun
) {
  const { stop_command } = file.get().spec.definition.process
  if (run.beginning?.isOver() === false) return yield* run.kill // no process yet
  if (run.interrupt !== undefined && isInterrupt(stop_command)) {
    yield* Effect.catch(run.interrupt, logNotStopped)
    return yield* after(INTERRUPT_TIMEOUT, "InterruptLate")
  }
  const method = stopMethod(stop_command)
  if ("signal" in method) return yield* run.signal(method.signal)
  const write = run.write(method.line)
  const retried = Effect.retry(write, { schedule: STOP_RETRY, while: ({ why }) => why === "away" })
  yield* Effect.catch(write, (error) =>
    error.why === "away"
      ? Effect.andThen(logNotStopped(error), inBackground(Effect.catch(retried, logNotStopped)))
      : logNotStopped(error)
  )
})

export const unpause = Effect.fnUntraced(function* (it: Serving) {
  yield* withStatus(it, "running")
  yield* it.live?.run.resume ?? Effect.void
})

export const pause = Effect.fnUntraced(function* (it: Serving) {
  yield* withStatus(it, "paused")
  yield* it.live?.run.pause ?? Effect.void
})

/** Asks the process to stop; kills it after the wait. */
export const endProcess = Effect.fnUntraced(function* (
  it: Serving,
  type: Intent["type"],
  wait_seconds: number
) {
  const { file, live } = it
  const before = file.get().status
  const now = yield* Clock.currentTimeMillis
  if (before === "paused") yield* unpause(it)
  const state = yield* file.update((current) => {
    const intent = intentOf(current, type, now, wait_seconds)
    // A stop cancels the start after a reset.
    const requested = { ...current, intent, ...(type === "stop" ? { start_again: false } : {}) }
    return before === "stopping" ? requested : withStatusReport(requested, "stopping")
  })
  if (live === undefined) return
  if (before !== "stopping") yield* askToStop(it, live)
  yield* live.at(state.intent?.deadline ?? now, wait_seconds, "StopLate")
})

/** @param accepted runs once the kill is recorded */
export const killProcess = Effect.fnUntraced(function* (it: Serving, accepted: Effect.Effect<void>) {
  const { file } = it
  if (file.get().status === "paused") yield* unpause(it)
  const now = yield* Clock.currentTimeMillis
  yield* file.update((state) => ({
    ...state,
    intent: intentOf(state, "kill", now, 0),
    start_again: false
  }))
  yield* accepted
  yield* it.live?.run.kill ?? Effect.void
})
