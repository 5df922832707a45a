import { constants } from "node:fs"
import * as fs from "node:fs/promises"
import { dirname, join } from "node:path"
import { Deferred, Effect, Schedule } from "effect"
import { CONSOLE_BOUND, consoleFiles, RELAY_MAX } from "../console/consoleFiles.ts"
import { io, lstat, openFile, removeTree } from "../disk/fsio.ts"
import { isFull } from "../disk/isFull.ts"
import { readProc } from "../host/procfs.ts"
import { LaunchFailed, type RunUser } from "./Runtime.ts"
import { spawnChild } from "./spawnChild.ts"

/** Bytes that the relay takes at once. */
const PIECE = 4096
/** Pieces between two looks at the size of the console: what a flood can add meanwhile. */
const PIECES = (CONSOLE_BOUND - RELAY_MAX) / PIECE

/**
 * What stands between a server and its console, in POSIX sh: copies what the server prints to `console.log`, at once
 * and byte for byte, and begins a new file when nobody cuts that one. It is woken by output only.
 *
 * - It outlives this service, and every signal but SIGKILL: it ends when nobody can print any more.
 * - It is no process of the server: not in its group, not marked, and not killed with it, so that last words arrive.
 * - A server never waits for a disk: what cannot be written is thrown away for a second, and then tried again.
 * - `dd` writes what it has read before it reads on, and says how often it has: `0+0` is the end.
 *
 * Arguments: `cgroup.procs` to join or nothing, where the output of this run begins in `console.log`. The working
 * directory is the server's folder.
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
  if said=$(LC_ALL=C dd bs=${PIECE} count=${PIECES} 2>&1 >> console.log); then
    case $said in 0+0*) exit 0;; esac
  else
    case $said in
      *"No space left"*) missed='the disk was full';;
      *[Qq]uota*) missed='the disk quota was exceeded';;
      *) missed='the console could not be written';;
    esac
    dd bs=${PIECE} <&3 > /dev/null &
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

/** A relay; pid and start time name it for good. */
export interface Relay {
  readonly pid: number
  readonly start: string
}

/** How long a relay may take to end after its server, in ms: something that got away may still be able to print. */
const PATIENCE = 2000

/**
 * Starts the relay of a run that is about to begin; answers what the server has to print to, open for the scope.
 * `group`: the `cgroup.procs` that it joins.
 */
export const startRelay = Effect.fnUntraced(function* (options: {
  readonly folder: string
  readonly group: string | undefined
  readonly env: Readonly<Record<string, string>>
  /** The user of the server, which may open its output anew. */
  readonly user?: RunUser | undefined
}) {
  const { env, folder, group, user } = options
  const begin = (yield* lstat(consoleFiles(folder).current))?.size ?? 0
  const pipe = join(folder, "console.out")
  yield* removeTree(pipe)
  yield* makeFifo(pipe)
  // In both directions first: neither of the others waits for its peer then.
  yield* openFile(pipe, constants.O_RDWR)
  const from = yield* openFile(pipe, constants.O_RDONLY)
  const to = yield* openFile(pipe, constants.O_WRONLY)
  if (user !== undefined) yield* io("give the console", () => to.chown(user.uid, user.gid))
  yield* io(`remove ${pipe}`, () => fs.unlink(pipe))
  const child = yield* spawnChild(["/bin/sh", "-c", RELAY, "muster-console", group ?? "", String(begin)], {
    cwd: folder,
    env,
    stdio: [from.fd, "ignore", "ignore"]
  })
  const relay: Relay = { pid: child.pid, start: readProc(child.pid)?.start ?? "0" }
  return { output: to.fd, relay }
})

/** Node has no call for it; coreutils' and busybox' `mkfifo` do the same. */
export const makeFifo = Effect.fnUntraced(function* (path: string) {
  const child = yield* spawnChild(["mkfifo", "-m", "600", path], { stdio: "ignore" })
  const code = yield* Deferred.await(child.exited)
  if (code === 0) return
  return yield* (yield* isFull(dirname(path)))
    ? new LaunchFailed({ message: `create ${path}: disk full`, code: "ENOSPC" })
    : new LaunchFailed({ message: `create ${path}: mkfifo exited with ${code}` })
})

/** Waits until all that a server has printed is in its console. */
export const drained = (relay: Relay | undefined): Effect.Effect<void> =>
  relay === undefined
    ? Effect.void
    : Effect.sync(() => readProc(relay.pid)?.start === relay.start).pipe(
        Effect.repeat({ while: (lives) => lives, schedule: Schedule.spaced(5) }),
        Effect.timeoutOption(PATIENCE),
        Effect.asVoid
      )
