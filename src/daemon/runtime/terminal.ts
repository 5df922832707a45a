/**
 * The pseudo-terminal of a plain process. A holder, which outlives this service, copies between it and the console.
 * It is in perl, which Debian always has: Node cannot make one.
 */
import { constants, readFileSync } from "node:fs"
import { Effect } from "effect"
import type { ProcessIsolation } from "../../contract/domain/Node.ts"
import { io, openFile } from "../disk/fsio.ts"
import { type Child, spawnChild } from "../host/runTool.ts"
import { LaunchFailed, type RunUser } from "./Runtime.ts"

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
