/** A program that a test starts, feeds and stops. */
import { spawn } from "node:child_process"
import { existsSync } from "node:fs"
import { Effect, type Scope } from "effect"
import { eventually } from "./eventually.ts"
import { ServiceFailed } from "./Service.ts"

export interface Child {
  readonly pid: number
  /** All output so far, both streams interleaved as they arrived. */
  readonly output: () => string
  readonly stdout: () => string
  readonly write: (text: string) => Effect.Effect<void>
  readonly endInput: Effect.Effect<void>
  /** Signals the program only. */
  readonly signal: (signal: NodeJS.Signals) => Effect.Effect<void>
  /** Signals the program and all its children, as a terminal does on Ctrl-C. */
  readonly signalAll: (signal: NodeJS.Signals) => Effect.Effect<void>
  /** Its exit code, or the name of the signal that ended it. */
  readonly exited: (within?: `${number} seconds`) => Effect.Effect<number | NodeJS.Signals, ServiceFailed>
  /** Waits until the output matches; fails if the program ends first. */
  readonly prints: (
    pattern: RegExp,
    within?: `${number} seconds`
  ) => Effect.Effect<RegExpExecArray, ServiceFailed>
}

/** The variables that programs need, without the settings of the test. */
export const plainEnv = (): Record<string, string> =>
  Object.fromEntries(
    ["PATH", "HOME", "NODE_EXTRA_CA_CERTS", "npm_config_registry", "npm_config_cache"].flatMap((name) => {
      const value = process.env[name]
      return value === undefined ? [] : [[name, value]]
    })
  )

/** Starts a program as the leader of a process group; the group is killed with the scope. */
export const startChild = (
  command: readonly [string, ...ReadonlyArray<string>],
  options: { readonly cwd: string; readonly env?: Readonly<Record<string, string>> }
): Effect.Effect<Child, ServiceFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const [program, ...args] = command
    const child = spawn(program, args, {
      cwd: options.cwd,
      env: { ...plainEnv(), ...options.env },
      stdio: ["pipe", "pipe", "pipe"],
      detached: true
    })
    const { pid } = child
    if (pid === undefined) return yield* new ServiceFailed({ message: `cannot start ${program}` })
    const hasEnded = () => child.exitCode !== null || child.signalCode !== null
    const signalAll = (signal: NodeJS.Signals) =>
      Effect.sync(() => {
        // The pid of an ended program may be that of another process now, with a group of its own.
        if (hasEnded() && existsSync(`/proc/${pid}`)) return
        try {
          process.kill(-pid, signal)
        } catch {
          // The group has ended.
        }
      })
    yield* Effect.addFinalizer(() => signalAll("SIGKILL"))

    let output = ""
    let stdout = ""
    let end: number | NodeJS.Signals | undefined
    child.on("error", () => {})
    child.stdin.on("error", () => {})
    child.stdout.on("data", (chunk: Buffer) => {
      output += chunk.toString()
      stdout += chunk.toString()
    })
    child.stderr.on("data", (chunk: Buffer) => {
      output += chunk.toString()
    })
    // Not `close`: children that keep running can hold the pipes open.
    child.once("exit", (code, signal) => {
      end = code ?? signal ?? undefined
    })

    const explained = (what: string) => (error: ServiceFailed) =>
      new ServiceFailed({ message: `${program}: ${what}: ${error.message}; printed:\n${output}` })
    return {
      pid,
      output: () => output,
      stdout: () => stdout,
      write: (text) => Effect.sync(() => child.stdin.write(text)),
      endInput: Effect.sync(() => child.stdin.end()),
      signal: (signal) => Effect.sync(() => child.kill(signal)),
      signalAll,
      exited: (within) =>
        eventually(
          Effect.sync(() => end),
          (it) => it !== undefined,
          within
        ).pipe(
          Effect.map((it) => it ?? 0), // defined, as the condition says
          Effect.mapError(explained("does not end"))
        ),
      prints: (pattern, within) =>
        eventually(
          Effect.suspend(() => {
            const found = pattern.exec(output)
            if (found === null && end !== undefined) {
              return Effect.fail(new ServiceFailed({ message: `ended with ${end}` }))
            }
            return Effect.succeed(found)
          }),
          (found) => found !== null,
          within
        ).pipe(
          Effect.flatMap((found) =>
            found === null ? Effect.fail(new ServiceFailed({ message: "nothing" })) : Effect.succeed(found)
          ),
          Effect.mapError(explained(`no ${pattern}`))
        )
    }
  })

/** Runs a program to its end and returns its output; fails if the program does. */
export const runToEnd = Effect.fnUntraced(function* (
  command: readonly [string, ...ReadonlyArray<string>],
  options: { readonly cwd: string; readonly env?: Record<string, string> },
  within: `${number} seconds` = "180 seconds"
) {
  const child = yield* startChild(command, options)
  const code = yield* child.exited(within)
  if (code !== 0) {
    return yield* new ServiceFailed({
      message: `${command.join(" ")} ended with ${code}:\n${child.output()}`
    })
  }
  return child.stdout()
}, Effect.scoped)
