/** Shared parts of the benches: figures, rounds and measured processes. */
import { type ChildProcess, spawn } from "node:child_process"
import { readFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { Data, Effect, Schedule, type Scope } from "effect"

export const root = resolve(import.meta.dirname, "../..")
/** The service's command, and its baselines: a plain `node:http` server, and one route of a plain `HttpApi`. */
export const mainFile = join(root, "dist/main.js")
export const bareFile = join(import.meta.dirname, "bare.ts")
const bareApiFile = join(import.meta.dirname, "bareApi.ts")

export class BenchFailed extends Data.TaggedError("BenchFailed")<{ readonly message: string }> {}

/** A measured number and its baseline, both from the same run. */
export interface Figure {
  readonly bench: string
  readonly figure: string
  readonly value: number
  readonly unit: string
  /** Describes the baseline in words. */
  readonly baseline: string
  readonly baseline_value: number
}

/** Three significant digits, the precision of a shared machine. */
const rounded = (value: number): number => Number(value.toPrecision(3))

/** Prints a figure as one line of JSON; `ratio` is `value / baseline_value`. */
export const print = ({ value, baseline_value, ...figure }: Figure) =>
  Effect.sync(() => {
    const { bench, figure: name, unit, baseline } = figure
    const line = {
      bench,
      figure: name,
      value: rounded(value),
      unit,
      baseline,
      baseline_value: rounded(baseline_value),
      ratio: rounded(value / baseline_value)
    }
    process.stdout.write(`${JSON.stringify(line)}\n`)
  })

/** Returns the median; with an even count the lower of the two in the middle. */
export const median = (values: ReadonlyArray<number>): number =>
  values.toSorted((a, b) => a - b)[(values.length - 1) >> 1] ?? Number.NaN

/** Runs the subject and its baseline alternately, so that disturbances affect both. */
export const interleaved = <A, E, R, B, E2, R2>(
  rounds: number,
  subject: Effect.Effect<A, E, R>,
  baseline: Effect.Effect<B, E2, R2>
) =>
  Effect.gen(function* () {
    const subjects: Array<A> = []
    const baselines: Array<B> = []
    for (let round = 0; round < rounds; round++) {
      subjects.push(yield* subject)
      baselines.push(yield* baseline)
    }
    return { subjects, baselines }
  })

/** Repeats `look` every `every` until it returns a value. */
export const poll = <A, E, R>(
  what: string,
  look: Effect.Effect<A | undefined, E, R>,
  options: { readonly every?: number; readonly seconds?: number } = {}
): Effect.Effect<A, E | BenchFailed, R> =>
  look.pipe(
    Effect.repeat({ schedule: Schedule.spaced(options.every ?? 20), until: (found) => found !== undefined }),
    Effect.timeoutOrElse({
      duration: `${options.seconds ?? 30} seconds`,
      orElse: () => Effect.succeed(undefined)
    }),
    Effect.flatMap((found) =>
      found === undefined
        ? Effect.fail(new BenchFailed({ message: `${what}: not within ${options.seconds ?? 30} s` }))
        : Effect.succeed(found)
    )
  )

const isGone = (pid: number): boolean => {
  try {
    process.kill(-pid, 0)
    return false
  } catch {
    return true
  }
}

const signal = (pid: number, name: NodeJS.Signals) =>
  Effect.sync(() => {
    if (!isGone(pid)) process.kill(-pid, name)
  })

/** Starts a process in its own process group; ends the group with the scope and waits for it. */
export const startProcess = (
  command: string,
  args: ReadonlyArray<string>,
  options: { readonly cwd?: string; readonly env?: Record<string, string> } = {}
): Effect.Effect<ChildProcess & { readonly pid: number }, BenchFailed, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.suspend(() => {
      const child = spawn(command, args, {
        cwd: options.cwd ?? root,
        env: { PATH: process.env.PATH ?? "", HOME: process.env.HOME ?? "", ...options.env },
        detached: true,
        stdio: ["ignore", "pipe", "ignore"]
      })
      child.once("error", () => {})
      const { pid } = child
      return pid === undefined
        ? Effect.fail(new BenchFailed({ message: `${command} cannot be started` }))
        : Effect.succeed(Object.assign(child, { pid }))
    }),
    ({ pid }) => {
      const gone = poll(
        "end",
        Effect.sync(() => isGone(pid) || undefined),
        { seconds: 10 }
      )
      return signal(pid, "SIGTERM").pipe(
        Effect.andThen(gone),
        Effect.catch(() => Effect.andThen(signal(pid, "SIGKILL"), Effect.ignore(gone)))
      )
    }
  )

/** Starts a server that prints its address; returns the address and the process. */
export const startServer = (file: string, args: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const child = yield* startProcess(process.execPath, [file, ...args])
    let output = ""
    child.stdout?.on("data", (chunk: Buffer) => {
      output += chunk.toString()
    })
    const url = yield* poll(
      "bare server",
      Effect.sync(() => /listens on (http:\S+)/.exec(output)?.[1])
    )
    return { url, pid: child.pid }
  })

/**
 * Starts the plain server of `bare.ts` on a free port.
 * @param mode the response of the server, see `bare.ts`
 */
export const startBare = (mode: "plain" | "reads" | "events" | "files", ...args: ReadonlyArray<string>) =>
  startServer(bareFile, [mode, ...args])

/** Starts the server of `bareApi.ts` on a free port. @param file the servers as JSON */
export const startBareApi = (file: string) => startServer(bareApiFile, [file])

/** Returns the CPU time of a process since its start, in microseconds, accurate to 10 ms. */
export const cpuMicros = (pid: number) =>
  Effect.try({
    try: () => {
      const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
        .replace(/^.*\) /s, "")
        .split(" ")
      // utime and stime, in hundredths of a second.
      return (Number(fields[11]) + Number(fields[12])) * 10_000
    },
    catch: (cause) => new BenchFailed({ message: `CPU time of ${pid}: ${cause}` })
  })

/** Returns the resident memory of a process in MiB. */
export const residentMiB = (pid: number) =>
  Effect.try({
    try: () => Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024,
    catch: (cause) => new BenchFailed({ message: `memory of ${pid}: ${cause}` })
  })

/** Returns the rate of sequential single-row commits to a SQLite file. */
export const sqliteCommitsPerSecond = (file: string, commits: number): Effect.Effect<number> =>
  Effect.acquireUseRelease(
    Effect.sync(() => new DatabaseSync(file)),
    (database) =>
      Effect.sync(() => {
        database.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        database.exec("CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
        const insert = database.prepare("INSERT INTO rows (body) VALUES (?)")
        const began = performance.now()
        for (let n = 0; n < commits; n++) insert.run('{"blueprint_id":"demo","overrides":{"save":true}}')
        return (commits * 1000) / (performance.now() - began)
      }),
    (database) => Effect.sync(() => database.close())
  )
