import { Clock, Deferred, Effect, Exit, Fiber, type Scope } from "effect"
import type { ProcessExit } from "../exitReason.ts"
import { KILLED } from "../processRun.ts"
import type { LaunchFailed, Run } from "../Runtime.ts"
import { consoleClosed } from "./containerInput.ts"

export interface PendingOptions {
  /** Creates and starts the container. */
  readonly making: Fiber.Fiber<Run, LaunchFailed>
  /** Reports why there is no container, before `ended` completes. */
  readonly onFailed: (error: LaunchFailed) => Effect.Effect<void>
  /** Removes a container that was created before the start was aborted. */
  readonly abandon: Effect.Effect<void>
}

const killedExit: ProcessExit = { code: KILLED, out_of_memory: false }
const neverBegan: ProcessExit = { code: 127, out_of_memory: false, never_began: true }

/** Returns a run whose container is not created yet: its image may be pulled first, which can take minutes. */
export const openPendingRun = Effect.fnUntraced(function* (options: PendingOptions, scope: Scope.Scope) {
  const { abandon, making, onFailed } = options
  const began = yield* Deferred.make<number>()
  const ended = yield* Deferred.make<ProcessExit>()
  let run: Run | undefined

  const watch = Effect.gen(function* () {
    const made = yield* Fiber.await(making)
    if (Exit.isSuccess(made)) {
      run = made.value
      yield* Deferred.succeed(began, yield* Clock.currentTimeMillis)
      return yield* Deferred.succeed(ended, yield* run.ended)
    }
    const failure = made.cause.reasons.find((reason) => reason._tag === "Fail")
    if (failure !== undefined) yield* onFailed(failure.error)
    // Aborted: `kill` completes `ended` after the removal. A defect is logged, and there is no container.
    else if (made.cause.reasons.every((reason) => reason._tag === "Interrupt")) return
    else yield* Effect.logError("a container cannot be started", made.cause)
    const { code, message, next } = failure?.error ?? {}
    yield* Deferred.succeed(ended, {
      ...neverBegan,
      ...(message === undefined
        ? {}
        : {
            why: {
              message,
              ...(code === undefined ? {} : { code }),
              ...(next === undefined ? {} : { next })
            }
          })
    })
  })
  yield* Effect.forkIn(watch, scope)

  const kill = Effect.gen(function* () {
    yield* Fiber.interrupt(making)
    const made = yield* Fiber.await(making)
    if (Exit.isSuccess(made)) return yield* made.value.kill
    yield* abandon
    yield* Deferred.succeed(ended, killedExit)
  })
  /** Calls the run; no effect while it is not created. */
  const ofRun = (use: (made: Run) => Effect.Effect<void>) =>
    Effect.suspend(() => (run === undefined ? Effect.void : use(run)))

  const pending: Run = {
    beginning: { at: Deferred.await(began), isOver: () => run !== undefined },
    ended: Deferred.await(ended),
    write: (line) => Effect.suspend(() => (run === undefined ? consoleClosed : run.write(line))),
    signal: (signal) => Effect.suspend(() => (run === undefined ? kill : run.signal(signal))),
    pause: ofRun((made) => made.pause),
    resume: ofRun((made) => made.resume),
    kill,
    pids: Effect.suspend(() => run?.pids ?? Effect.succeed([])),
    usage: Effect.suspend(() => (run === undefined ? Effect.succeed(undefined) : run.usage))
  }
  return pending
})
