import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process"
import os from "node:os"
import { Deferred, Effect, Semaphore } from "effect"
import { IoError, toIoError } from "../disk/fsio.ts"
import { type Program, repeatable, TOOL_ENV } from "../helper/Helper.ts"

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
 * Starts a program in a new session and process group. Listeners precede its first event, so that no exit is missed.
 * Without `env` it has {@link TOOL_ENV}; `undefined` inherits the environment.
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

/** Characters of output that are kept: the end of it. */
const MAX_OUTPUT = 65_536

type Argv = readonly [string, ...ReadonlyArray<string>]

/** Starts a program and collects its standard error. `onOutput` gets its standard output; absent: the caller reads it. */
const startTool = Effect.fnUntraced(function* (
  argv: Argv,
  options: SpawnOptions,
  onOutput?: (text: string) => void
) {
  const { closed, exited, process } = yield* spawnChild(argv, options)
  process.ref()
  let stderr = ""
  process.stderr?.setEncoding("utf8").on("data", (text: string) => {
    stderr = (stderr + text).slice(-MAX_OUTPUT)
  })
  if (onOutput !== undefined) process.stdout?.setEncoding("utf8").on("data", onOutput)
  // The exit code explains why input was refused.
  process.stdin?.on("error", () => {})
  return {
    process,
    /** Waits for the end and all output; returns the exit code (see `Child.exited`). */
    ended: Effect.andThen(Deferred.await(closed), Deferred.await(exited)),
    /** Waits for the end only: a child of the program may keep the output open. */
    exited: Deferred.await(exited),
    stderr: () => stderr
  }
})

export const scopedTool = (...args: Parameters<typeof startTool>) =>
  Effect.acquireRelease(startTool(...args), ({ exited, process }) => {
    process.kill("SIGKILL")
    return exited
  })

/** Runs a program to its end; an interruption kills it. `input`: its standard input. */
export const runTool = Effect.fnUntraced(function* (
  argv: Argv,
  { input, ...options }: SpawnOptions & { readonly input?: string } = {}
) {
  let stdout = ""
  const stdio = [input === undefined ? "ignore" : "pipe", "pipe", "pipe"] as const
  const tool = yield* scopedTool(argv, { stdio: [...stdio], ...options }, (text) => {
    stdout = (stdout + text).slice(-MAX_OUTPUT)
  })
  if (input !== undefined) tool.process.stdin?.end(input)
  const code = yield* tool.ended
  return { code, stderr: tool.stderr(), stdout }
}, Effect.scoped)

/** Runs a program to its end by the helper, without a fork; an interruption kills it. Output ends at 4 KiB. */
export const runProgram = (argv: readonly [Program, ...ReadonlyArray<string>]) =>
  repeatable("run", argv).pipe(
    Effect.map(({ code, errors, output }) => ({ code, stderr: errors, stdout: output.toString() })),
    Effect.catchTags({
      HelperUnavailable: () => runTool(argv),
      HelperLost: () =>
        new IoError({ code: "EINTR", message: `${argv[0]} was killed, and so was its repetition` })
    })
  )
