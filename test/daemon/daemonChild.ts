/** Starts and controls a daemon in its own process. */
import { type ChildProcess, spawn } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { until } from "../support/eventually.ts"

const script = join(import.meta.dirname, "daemonProcess.ts")
/** Halves the CPU time of a start. */
const NODE_COMPILE_CACHE = join(import.meta.dirname, "../../node_modules/.cache/tests")

/** Starts a daemon process; kills it with the scope. */
export const daemonProcess = (dataDir: string, ...args: ReadonlyArray<string>) =>
  daemonProcessAs([], dataDir, ...args)

/** Starts a daemon process through another program, for example one that changes the user. */
export const daemonProcessAs = Effect.fnUntraced(function* (
  by: ReadonlyArray<string>,
  dataDir: string,
  ...args: ReadonlyArray<string>
) {
  const [program = "", ...words] = [...by, process.execPath, script, dataDir, ...args]
  const child: ChildProcess = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(program, words, {
        stdio: ["pipe", "pipe", "inherit"],
        env: { ...process.env, NODE_COMPILE_CACHE }
      })
    ),
    (process) => Effect.sync(() => process.kill("SIGKILL"))
  )
  let answers: ReadonlyArray<string> = []
  let output = ""
  child.stdout?.on("data", (bytes) => {
    output += String(bytes)
    answers = output.split("\n").slice(0, -1)
  })
  yield* until("the daemon is up", () => answers.length > 0)
  /** Does not wait for the answer. */
  const send = (line: string) => Effect.sync(() => child.stdin?.write(`${line}\n`))
  const ask = Effect.fnUntraced(function* (line: string) {
    const before = answers.length
    yield* send(line)
    yield* until(`an answer to ${line}`, () => answers.length > before)
    assert.strictEqual(answers[before], "ok")
  })
  const kill = Effect.gen(function* () {
    child.kill("SIGKILL")
    yield* until("the daemon is dead", () => child.exitCode !== null || child.signalCode !== null)
  })
  const [, pid = "0", level = ""] = answers[0]?.split(" ") ?? []
  return { ask, send, kill, pid: Number(pid), level }
})

/** Returns the parsed `server.json` of a server. */
export const stateOf = (dataDir: string, id: string) => {
  const path = join(dataDir, "servers", id, "server.json")
  return existsSync(path) ? JSON.parse(readFileSync(path, "utf8")) : {}
}
