/** Stops, kills and pauses of the process of an instance. */
import { Clock, Effect, type Exit, Schedule } from "effect"
import { isInterrupt, stopMethod } from "../runtime/exitReason.ts"
import type { ConsoleInputFailed } from "../runtime/Runtime.ts"
import { type InstanceState, type Intent, withReport } from "../state/InstanceState.ts"
import type { Serving } from "./serving.ts"
import { INTERRUPT_TIMEOUT, type WatchedRun } from "./watchRun.ts"

export const endStart = (it: Serving, exit?: Exit.Exit<unknown, unknown>) =>
  Effect.suspend(() => {
    const span = it.startSpan
    it.startSpan = undefined
    return span?.end(exit) ?? Effect.void
  })

/** Reports a status of the process. */
export const withStatus = (it: Serving, status: "running" | "paused") =>
  it.file
    .update((state) => withReport(state, { type: "status", status, transient: false }))
    .pipe(Effect.tap(() => endStart(it)))

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
    return before === "stopping"
      ? requested
      : withReport(requested, { type: "status", status: "stopping", transient: false })
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
