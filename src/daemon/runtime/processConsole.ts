/**
 * The console of a plain process: its input, the relay of its output, and its pseudo-terminal. Relays and holders of
 * terminals outlive this service. A holder is in perl, which Debian always has: Node cannot make a terminal.
 */
import { closeSync, constants, openSync, readFileSync, writeSync } from "node:fs"
import * as fs from "node:fs/promises"
import { dirname, join } from "node:path"
import { Effect, Schedule, Semaphore } from "effect"
import type { ProcessIsolation } from "../../contract/domain/Node.ts"
import { CONSOLE_BOUND, consoleFiles, RELAY_MAX } from "../console/consoleFiles.ts"
import { errorCode, io, isDiskFull, lstat, openFile, removeTree } from "../disk/fsio.ts"
import { readProc } from "../host/procfs.ts"
import { type Child, runProgram, spawnChild } from "../host/runTool.ts"
import { ConsoleInputFailed, LaunchFailed, type RunUser } from "./Runtime.ts"

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

export const TERMINAL_SIZE = { rows: 40, columns: 120 } as const
/** A console has lines and no cursor, so programs must not move one. */
export const TERMINAL_ENV = { TERM: "dumb" } as const
/** The byte of ^C. */
export const INTERRUPT = "\x03"

const HOLDER = readFileSync(new URL("./terminal.pl", import.meta.url), "utf8")

/** Servers that share a uid must not open each other's terminals, so theirs are in file systems of their own. */
const OWN_TERMINALS = [
  ...["unshare", "--user", "--map-current-user", "--keep-caps", "--mount", "--", "/bin/sh", "-c"],
  'mount -n -i -t devpts -o newinstance,ptmxmode=0666,mode=0600 muster /dev/pts && exec "$@"',
  "muster-terminal"
] as const

const holder = (level: ProcessIsolation, group: string): readonly [string, ...ReadonlyArray<string>] => {
  const { columns, rows } = TERMINAL_SIZE
  const program = ["perl", "-e", HOLDER, "--", group, String(rows), String(columns)] as const
  return level === "namespaces" ? [...OWN_TERMINALS, ...program] : program
}

/** Waits for the first line of the holder, which is the number of a descriptor, or why there is no terminal. */
const descriptorOf = ({ process }: Child) =>
  Effect.callback<string, LaunchFailed>((resume) => {
    let text = ""
    const pipe = process.stderr?.setEncoding("utf8")
    pipe?.on("data", (more: string) => {
      text += more
      if (/^\d+\n$/.test(text)) resume(Effect.succeed(text.trim()))
    })
    for (const end of ["end", "error"]) {
      pipe?.on(end, () =>
        resume(
          new LaunchFailed({
            message: `the server needs a terminal, and none can be made: ${text.trim() || "perl has failed"}`,
            next: "install perl-base and mount /dev/pts on the node"
          })
        )
      )
    }
  })

/** Starts a terminal's holder in `group`; returns the descriptor for the server, open for the scope. */
export const startTerminal = Effect.fnUntraced(function* (options: {
  readonly input: number | "pipe"
  readonly output: number | "pipe"
  readonly group: string | undefined
  readonly level: ProcessIsolation
  readonly user: RunUser | undefined
}) {
  const { group = "", input, level, output, user } = options
  const child = yield* Effect.acquireRelease(
    spawnChild(holder(level, group), { stdio: [input, output, "pipe"] }),
    ({ process }) => Effect.sync(() => process.stderr?.destroy())
  )
  const path = `/proc/${child.pid}/fd/${yield* descriptorOf(child)}`
  // Otherwise the terminal would become that of this service.
  const terminal = yield* openFile(path, constants.O_RDWR | constants.O_NOCTTY)
  if (user !== undefined) yield* io("set the owner of the terminal", () => terminal.chown(user.uid, user.gid))
  yield* io("close the terminal to others", () => terminal.chmod(0o600))
  return { terminal: terminal.fd, holder: child }
})

/** Returns the command of a session leader whose input is a terminal, which becomes that of its session when opened. */
export const onTerminal = (argv: ReadonlyArray<string>) =>
  ["/bin/sh", "-c", ': < /proc/self/fd/0 && exec "$@"', "muster-terminal", ...argv] as const

/** The wait for a full pipe: 8 times 50 ms. */
const fullPipeRetry = Schedule.max([Schedule.spaced(50), Schedule.recurs(8)])

const inputFailed = (cause: unknown, isPartial = false) => {
  const full = errorCode(cause) === "EAGAIN"
  const message = full ? "the server does not read its console" : "the console is closed"
  return new ConsoleInputFailed({ why: full ? "full" : "closed", message, isPartial })
}

/** Writes texts to the pipe that a server reads, one at a time, without blocking. */
export const makeConsoleInput = Effect.fnUntraced(function* (path: string) {
  const lock = yield* Semaphore.make(1)
  // Whether a text was written in part; the next one must not continue its line.
  let isPartial = false

  const write = (text: string) => {
    const before = isPartial ? "\n" : ""
    const data = Buffer.from(`${before}${text}`)
    let sent = 0
    const push = (fd: number) =>
      Effect.try({
        try: () => {
          while (sent < data.length) sent += writeSync(fd, data, sent)
          isPartial = false
        },
        catch: (cause) => {
          isPartial ||= sent > 0
          return inputFailed(cause, sent > before.length)
        }
      })
    const open = Effect.try({
      try: () => openSync(path, constants.O_WRONLY | constants.O_NONBLOCK),
      catch: (cause) => inputFailed(cause)
    })
    return Effect.scoped(
      Effect.acquireRelease(open, (fd) => Effect.sync(() => closeSync(fd))).pipe(
        Effect.flatMap((fd) =>
          Effect.retry(push(fd), { schedule: fullPipeRetry, while: (error) => error.why === "full" })
        )
      )
    )
  }
  return (text: string) => lock.withPermit(Effect.suspend(() => write(text)))
})
