import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { dirname, join } from "node:path"
import { Effect, Schedule } from "effect"
import { CONSOLE_BOUND, consoleFiles, RELAY_MAX } from "../console/consoleFiles.ts"
import { io, isDiskFull, lstat, openFile, removeTree } from "../disk/fsio.ts"
import { readProc } from "../host/procfs.ts"
import { runProgram } from "../process/runTool.ts"
import { spawnChild } from "../process/spawnChild.ts"
import { LaunchFailed, type RunUser } from "./Runtime.ts"

/** Bytes per read of the relay. */
const BLOCK = 4096
/** Reads between two checks of the console's size: the most that can be added meanwhile. */
const BLOCKS = (CONSOLE_BOUND - RELAY_MAX) / BLOCK

/**
 * The relay between a server and its console, in POSIX sh. It appends the output of the server to `console.log` at
 * once, and rotates the file if this service does not. It wakes up on output only.
 *
 * - The relay outlives this service and every signal but SIGKILL. It ends when all writers have closed the pipe.
 * - The relay is not a process of the server: it has its own group and no marker, and is not killed with the server, so
 * that the last output arrives.
 * - A server never waits for a disk: output that cannot be written is discarded for a second, then writing is retried.
 * - `dd` writes each block before it reads the next, and reports their number: `0+0` is the end.
 *
 * Arguments: the `cgroup.procs` to join or an empty word, and the offset in `console.log` at which the output of this
 * run begins. The working directory is the folder of the server.
 */
export const RELAY = `
trap '' HUP INT QUIT TERM USR1 USR2 PIPE
umask 077
if [ -n "$1" ]; then echo $$ > "$1"; fi
from=$2
exec 3<&0
last=0
missed=
while :; do
  if [ -n "$missed" ]; then
    if printf '\\n[some output is missing here: %s]\\n' "$missed" >> console.log; then missed=; fi
  fi
  if said=$(LC_ALL=C dd bs=${BLOCK} count=${BLOCKS} 2>&1 >> console.log); then
    case $said in 0+0*) exit 0;; esac
  else
    case $said in
      *"No space left"*) missed='the disk was full';;
      *[Qq]uota*) missed='the disk quota was exceeded';;
      *) missed='the console could not be written';;
    esac
    dd bs=${BLOCK} <&3 > /dev/null &
    sleep 1
    kill -KILL $!
    if wait $!; then exit 0; fi
    continue
  fi
  size=$(wc -c < console.log)
  size=$((size))
  if [ "$size" -lt "$last" ]; then from=0; fi
  last=$size
  if [ "$size" -le ${RELAY_MAX} ]; then continue; fi
  left=0
  if [ -e console.cut ]; then
    read -r begins left < console.cut
    old=$(wc -c < console.log.1)
    left=$((left + old))
    if [ "$begins" != earlier ]; then from=gone; fi
  fi
  printf '%s %s\\n' "$from" "$left" > console.cut.tmp && mv -f console.cut.tmp console.cut
  mv -f console.log console.log.1
  from=0
  last=0
done
`

/** A relay, identified by pid and start time. */
export interface Relay {
  readonly pid: number
  readonly start: string
}

/** The time for a relay to end after its server, in ms: a process that escaped may still hold the pipe. */
const RELAY_TIMEOUT = 2000

/**
 * Starts the relay of a run; returns the descriptor for the server's output, open for the scope. `group`: the
 * `cgroup.procs` that the relay joins.
 */
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
  const child = yield* spawnChild(["/bin/sh", "-c", RELAY, "muster-console", group ?? "", String(begin)], {
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

/** Waits until all output of a server is in its console. */
export const relayEnded = (relay: Relay | undefined): Effect.Effect<void> =>
  relay === undefined
    ? Effect.void
    : Effect.sync(() => readProc(relay.pid)?.start === relay.start).pipe(
        Effect.repeat({ while: (lives) => lives, schedule: Schedule.spaced(5) }),
        Effect.timeoutOption(RELAY_TIMEOUT),
        Effect.asVoid
      )
