/** Requests to a process of a server: stop, kill, pause. */
import { Clock, Effect, Schedule } from "effect"
import { isInterrupt, stopMethod } from "../runtime/exitReason.ts"
import type { ConsoleInputFailed } from "../runtime/Runtime.ts"
import type { InstanceFile } from "../state/InstanceFile.ts"
import { type InstanceState, type Intent, withReport } from "../state/InstanceState.ts"
import { type LiveRun, remainingMillis } from "./LiveRun.ts"

/** The pause between two attempts to stop a server whose engine is down. */
const STOP_RETRY = Schedule.spaced(500)
/** The time for a server to stop after the byte of ^C before it gets SIGINT, in ms. */
export const INTERRUPT_TIMEOUT = 5000

/** Returns the new intent: an accepted reset remains, else the latest request wins. */
const intentOf = (state: InstanceState, type: Intent["type"], now: number, wait_seconds: number): Intent => {
  const deadline = now + wait_seconds * 1000
  return {
    type: state.intent?.type === "reset" ? "reset" : type,
    deadline: Math.min(deadline, state.intent?.deadline ?? deadline),
    asked_at: state.intent?.asked_at ?? now
  }
}

export interface ProcessStopOptions {
  readonly file: InstanceFile
  readonly live: () => LiveRun | undefined
  readonly status: (value: "running" | "paused") => Effect.Effect<unknown>
}

export const makeProcessStop = ({ file, live, status }: ProcessStopOptions) => {
  // A server that cannot be asked is killed at its deadline.
  const logNotStopped = ({ message, why }: ConsoleInputFailed) =>
    Effect.logWarning(`the stop command failed: ${message}${why === "away" ? "; retrying" : ""}`)

  const askToStop = Effect.fnUntraced(function* ({ after, inBackground, run, token }: LiveRun) {
    const { stop_command } = file.get().spec.definition.process
    if (run.beginning?.isOver() === false) return yield* run.kill // no process yet
    if (run.interrupt !== undefined && isInterrupt(stop_command)) {
      yield* Effect.catch(run.interrupt, logNotStopped)
      return yield* after(INTERRUPT_TIMEOUT, { _tag: "InterruptLate", token })
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

  const unpause = Effect.gen(function* () {
    yield* status("running")
    yield* live()?.run.resume ?? Effect.void
  })

  const pause = Effect.gen(function* () {
    yield* status("paused")
    yield* live()?.run.pause ?? Effect.void
  })

  /** Asks the process to stop; kills it after the wait. */
  const end = Effect.fnUntraced(function* (type: Intent["type"], wait_seconds: number) {
    const before = file.get().status
    const now = yield* Clock.currentTimeMillis
    if (before === "paused") yield* unpause
    const state = yield* file.update((current) => {
      const intent = intentOf(current, type, now, wait_seconds)
      // A stop cancels the start after a reset.
      const requested = { ...current, intent, ...(type === "stop" ? { start_again: false } : {}) }
      return before === "stopping"
        ? requested
        : withReport(requested, { type: "status", status: "stopping", transient: false })
    })
    const current = live()
    if (current === undefined) return
    if (before !== "stopping") yield* askToStop(current)
    const wait = yield* remainingMillis(state.intent?.deadline ?? now, wait_seconds)
    yield* current.after(wait, { _tag: "StopLate", token: current.token })
  })

  /** Kills the process; `accepted` runs once the intent is recorded. */
  const kill = Effect.fnUntraced(function* (accepted: Effect.Effect<void>) {
    if (file.get().status === "paused") yield* unpause
    const now = yield* Clock.currentTimeMillis
    yield* file.update((state) => ({
      ...state,
      intent: intentOf(state, "kill", now, 0),
      start_again: false
    }))
    yield* accepted
    yield* live()?.run.kill ?? Effect.void
  })

  return { askToStop, end, kill, pause, unpause }
}
