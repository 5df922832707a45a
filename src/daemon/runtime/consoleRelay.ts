import { constants, readFileSync } from "node:fs"
import * as fs from "node:fs/promises"
import { dirname, join } from "node:path"
import { Effect, Schedule } from "effect"
import { CONSOLE_BOUND, consoleFiles, RELAY_MAX } from "../console/consoleFiles.ts"
import { io, isDiskFull, lstat, openFile, removeTree } from "../disk/fsio.ts"
import { readProc } from "../host/procfs.ts"
import { runProgram, spawnChild } from "../host/runTool.ts"
import { LaunchFailed, type RunUser } from "./Runtime.ts"

const BLOCK = 4096
/** Reads between two checks of the console's size: the most that can be added meanwhile. */
const BLOCKS = (CONSOLE_BOUND - RELAY_MAX) / BLOCK

const RELAY = readFileSync(new URL("./consoleRelay.sh", import.meta.url), "utf8")

/** Returns the arguments of a shell that is a relay. `begin`: the offset in `console.log` at which the run begins. */
export const relayArguments = (group: string, begin: number): ReadonlyArray<string> => [
  ...["-c", RELAY, "muster-console", group],
  ...[begin, BLOCK, BLOCKS, RELAY_MAX].map(String)
]

export interface Relay {
  readonly pid: number
  readonly start: string
}

/** The time for a relay to end after its server, in ms: a process that escaped may still hold the pipe. */
const RELAY_TIMEOUT = 2000

/** Starts the relay of a run, and returns the descriptor for the server's output, open for the scope. */
export const startRelay = Effect.fnUntraced(function* (options: {
  readonly folder: string
  readonly group: string | undefined
  readonly env: Readonly<Record<string, string>>
  /** The user of the server, which may reopen its output. */
  readonly user?: RunUser | undefined
}) {
  const { env, folder, group, user } = options
  const begin = (yield* lstat(consoleFiles(folder).current))?.size ?? 0
  const pipe = join(folder, "console.out")
  yield* removeTree(pipe)
  yield* makeFifo(pipe)
  // Opened for reading and writing first, so that the next two opens do not block.
  yield* openFile(pipe, constants.O_RDWR)
  const from = yield* openFile(pipe, constants.O_RDONLY)
  const to = yield* openFile(pipe, constants.O_WRONLY)
  if (user !== undefined) yield* io("set the owner of the console", () => to.chown(user.uid, user.gid))
  yield* io(`remove ${pipe}`, () => fs.unlink(pipe))
  const child = yield* spawnChild(["/bin/sh", ...relayArguments(group ?? "", begin)], {
    cwd: folder,
    env,
    stdio: [from.fd, "ignore", "ignore"]
  })
  const relay: Relay = { pid: child.pid, start: readProc(child.pid)?.start ?? "0" }
  return { output: to.fd, relay }
})

/** Makes a named pipe with the program `mkfifo`; Node has no call for it. */
export const makeFifo = Effect.fnUntraced(function* (path: string) {
  const { code } = yield* runProgram(["mkfifo", "-m", "600", path])
  if (code === 0) return
  return yield* (yield* isDiskFull(dirname(path)))
    ? new LaunchFailed({ message: `create ${path}: disk full`, code: "ENOSPC" })
    : new LaunchFailed({ message: `create ${path}: mkfifo exited with ${code}` })
})

export const relayEnded = (relay: Relay): Effect.Effect<void> =>
  Effect.sync(() => readProc(relay.pid)?.start === relay.start).pipe(
    Effect.repeat({ while: (lives) => lives, schedule: Schedule.spaced(5) }),
    Effect.timeoutOption(RELAY_TIMEOUT),
    Effect.asVoid
  )
