/** Runs the command line to its end and returns its output. */
import { spawn } from "node:child_process"
import { join, resolve } from "node:path"
import { Effect } from "effect"
import { databaseEnv } from "./testDatabase.ts"

const root = resolve(import.meta.dirname, "../..")

export interface Ended {
  /** Null if a signal ended it. */
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** Runs `muster <args>` with only these variables and the database of the test, and waits for its end. */
export const muster = (
  args: ReadonlyArray<string>,
  env: Readonly<Record<string, string>> = {}
): Effect.Effect<Ended> => {
  const { MUSTER_DATA_DIR: dataDir } = env
  return Effect.flatMap(
    dataDir === undefined ? Effect.succeed({}) : Effect.orDie(databaseEnv(dataDir)),
    (database) => run(args, { ...database, ...env })
  )
}

/** The cells of each line of a printed table, the header first. */
export const cells = (stdout: string): ReadonlyArray<ReadonlyArray<string>> =>
  stdout.split("\n").map((line) => line.split(/ {2,}/))

const run = (args: ReadonlyArray<string>, env: Readonly<Record<string, string>>): Effect.Effect<Ended> =>
  Effect.callback<Ended>((resume) => {
    const child = spawn(process.execPath, [join(root, "dist/main.js"), ...args], {
      cwd: root,
      // The contexts of the person who runs the tests do not count.
      env: {
        PATH: process.env.PATH ?? "",
        HOME: process.env.HOME ?? "",
        XDG_CONFIG_HOME: "/dev/null",
        ...env
      },
      stdio: ["ignore", "pipe", "pipe"]
    })
    let stdout = ""
    let stderr = ""
    child.stdout.on("data", (chunk: Buffer) => {
      stdout += chunk.toString()
    })
    child.stderr.on("data", (chunk: Buffer) => {
      stderr += chunk.toString()
    })
    child.once("close", (code) => resume(Effect.succeed({ code, stdout, stderr })))
    return Effect.sync(() => child.kill("SIGKILL"))
  })
