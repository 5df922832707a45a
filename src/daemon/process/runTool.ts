import type { ChildProcess, SpawnOptions } from "node:child_process"
import { Deferred, Effect } from "effect"
import { IoError } from "../disk/fsio.ts"
import { type Program, repeatable } from "../helper/Helper.ts"
import { spawnChild } from "./spawnChild.ts"

/** Characters of output that are kept: the end of it. */
const MAX_OUTPUT = 65_536

type Argv = readonly [string, ...ReadonlyArray<string>]

/** A running program of the system. */
export interface Tool {
  readonly process: ChildProcess
  /** Waits for the end and all output; returns the exit code (see `Child.exited`). */
  readonly ended: Effect.Effect<number>
  /** Waits for the end only: a child of the program may keep the output open. */
  readonly exited: Effect.Effect<number>
  readonly stderr: () => string
}

/** Starts a program and collects its standard error. `onOutput` gets its standard output; absent: the caller reads it. */
export const startTool = Effect.fnUntraced(function* (
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
  const ended = Effect.andThen(Deferred.await(closed), Deferred.await(exited))
  const tool: Tool = { process, ended, exited: Deferred.await(exited), stderr: () => stderr }
  return tool
})

/** Starts a program that the end of the scope kills. */
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

/**
 * Runs a program by the helper, so that this process does not fork, to its end; an interruption kills it. Its working
 * directory is any, and its output ends at 4 KiB.
 */
export const runProgram = (argv: readonly [Program, ...ReadonlyArray<string>]) =>
  repeatable("run", argv).pipe(
    Effect.map(({ code, errors, output }) => ({ code, stderr: errors, stdout: output.toString() })),
    Effect.catchTags({
      HelperUnavailable: () => runTool(argv),
      HelperLost: () =>
        new IoError({ code: "EINTR", message: `${argv[0]} was killed, and so was its repetition` })
    })
  )
