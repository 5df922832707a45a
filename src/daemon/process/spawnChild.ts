import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process"
import os from "node:os"
import { Deferred, Effect, Semaphore } from "effect"
import { type IoError, toIoError } from "../disk/fsio.ts"
import { TOOL_ENV } from "../helper/toolEnv.ts"

/** A started child process. */
export interface Child {
  readonly process: ChildProcess
  readonly pid: number
  /** The exit code as in a shell: 128 + n for signal n. */
  readonly exited: Deferred.Deferred<number>
  /** Done when the process has exited and its pipes are closed. */
  readonly closed: Deferred.Deferred<void>
}

const codeOf = (code: number | null, signal: NodeJS.Signals | null): number =>
  code ?? 128 + (signal === null ? 0 : os.constants.signals[signal])

/** Starts one program per turn of the event loop: a fork blocks the process. */
const spawnLock = Semaphore.makeUnsafe(1)
const nextTurn = Effect.callback<void>((resume) => {
  setImmediate(() => resume(Effect.void))
})

/**
 * Starts a program as the leader of its own session and group; returns when it runs. Listeners are attached before the
 * first event, so that no exit is missed. Without `env`, the program has {@link TOOL_ENV}; `undefined` inherits the environment.
 */
export const spawnChild = (
  argv: readonly [string, ...ReadonlyArray<string>],
  options: SpawnOptions
): Effect.Effect<Child, IoError> =>
  Effect.callback<Child, IoError>((resume) => {
    const [file, ...args] = argv
    const failed = (cause: unknown) => resume(Effect.fail(toIoError(`cannot run ${file}`, cause)))
    try {
      const child = spawn(file, args, { env: TOOL_ENV, ...options, detached: true })
      const exited = Deferred.makeUnsafe<number>()
      const closed = Deferred.makeUnsafe<void>()
      child.once("error", failed)
      child.once("exit", (code, signal) => Deferred.doneUnsafe(exited, Effect.succeed(codeOf(code, signal))))
      child.once("close", () => Deferred.doneUnsafe(closed, Effect.void))
      child.once("spawn", () => {
        child.unref()
        resume(Effect.succeed({ process: child, pid: child.pid ?? 0, exited, closed }))
      })
    } catch (cause) {
      failed(cause) // invalid arguments, e.g. with NUL
    }
  }).pipe((spawned) => Effect.andThen(nextTurn, spawned), spawnLock.withPermit, Effect.uninterruptible)
