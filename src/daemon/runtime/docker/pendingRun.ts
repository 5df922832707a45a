import { Clock, Deferred, Effect, Exit, Fiber, type Scope } from "effect"
import type { ProcessExit } from "../exitReason.ts"
import { KILLED } from "../processRun.ts"
import type { LaunchFailed, Run } from "../Runtime.ts"
import { consoleClosed } from "./containerInput.ts"

export interface PendingOptions {
  /** Makes the container and starts it. */
  readonly making: Fiber.Fiber<Run, LaunchFailed>
  /** Tells why there will be no container, before `ended` does. */
  readonly onFailed: (error: LaunchFailed) => Effect.Effect<void>
  /** Removes what there may be of a container that was given up. */
  readonly abandon: Effect.Effect<void>
}

const nothingLeft: ProcessExit = { code: KILLED, out_of_memory: false }
const neverBegan: ProcessExit = { code: 127, out_of_memory: false, never_began: true }

/** A run whose container is still being made: its image is pulled first, which can take minutes. */
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
    // Given up: `kill` tells, once nothing is left. A defect is in the log, and there is no container either.
    else if (made.cause.reasons.every((reason) => reason._tag === "Interrupt")) return
    else yield* Effect.logError("a container cannot be started", made.cause)
    yield* Deferred.succeed(ended, neverBegan)
  })
  yield* Effect.forkIn(watch, scope)

  const kill = Effect.gen(function* () {
    yield* Fiber.interrupt(making)
    const made = yield* Fiber.await(making)
    if (Exit.isSuccess(made)) return yield* made.value.kill
    yield* abandon
    yield* Deferred.succeed(ended, nothingLeft)
  })
  /** What is asked of a run that is being made is asked of none. */
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
    usage: Effect.suspend(() => (run === undefined ? Effect.succeed(undefined) : run.usage))
  }
  return pending
})
