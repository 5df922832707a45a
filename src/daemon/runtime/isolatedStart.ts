/** The start of a plain process at a level of isolation (isolation.ts). */
import { randomUUID } from "node:crypto"
import { readFileSync } from "node:fs"
import * as fs from "node:fs/promises"
import { basename, dirname, join } from "node:path"
import { Deferred, Effect, Schedule, type Scope } from "effect"
import type { ProcessIsolation } from "../../contract/domain/Node.ts"
import { type IoError, io, lstat, mountTable, openFile, removeTree } from "../disk/fsio.ts"
import { isIn, type MountEntry, mountOf } from "../disk/mountTable.ts"
import { TOOL_ENV } from "../helper/Helper.ts"
import { type Child, spawnChild } from "../host/runTool.ts"
import { type Cover, NO_PROGRAM, type Private, type Shown, scriptText } from "./isolationScript.ts"
import { onTerminal, startTerminal, TERMINAL_ENV } from "./processConsole.ts"
import { LaunchFailed, noProgram, type RunUser } from "./Runtime.ts"
import type { Programs } from "./reachable.ts"

export interface Start {
  readonly folder: string
  /** The private folders of the process. With a mount namespace, they cover folders of the host. */
  readonly own: Private
  readonly cwd: string
  /** Further folders that stay visible below a cover. */
  readonly shown: ReadonlyArray<{ readonly path: string; readonly read_only: boolean }>
  readonly argv: readonly [string, ...ReadonlyArray<string>]
  /** The environment of the program; no other process shows it. */
  readonly env: Readonly<Record<string, string>>
  readonly user: RunUser | undefined
}

/** The command of an isolated process: `script` becomes its descriptor 3, and its environment is `TOOL_ENV`. */
export interface Started {
  readonly argv: readonly [string, ...ReadonlyArray<string>]
  readonly script: number
  readonly missing: LaunchFailed
  /** Whether the isolation is complete and the program is about to run. */
  readonly hasBegun: () => boolean
  /** Empties the script, which the remaining processes have open. */
  readonly clear: Effect.Effect<void>
}

export type Begin = (start: Start) => Effect.Effect<Started, IoError | LaunchFailed, Scope.Scope>

const NO_RIGHTS = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]
const NAMESPACES = [
  "--mount",
  "--pid",
  "--ipc",
  "--fork",
  "--kill-child",
  "--propagation",
  "slave",
  "--mount-proc"
]
const RUN_SCRIPT = ["/bin/sh", "/proc/self/fd/3"] as const
/** Mount flags that a second mount of a file system must keep. */
const KEPT_FLAGS = ["noexec", "ro"]
const argvOf = (level: ProcessIsolation): readonly [string, ...ReadonlyArray<string>] => {
  switch (level) {
    case "user+namespaces":
      return ["unshare", ...NAMESPACES, "--", ...RUN_SCRIPT]
    case "namespaces":
      return ["unshare", "--user", "--map-current-user", "--keep-caps", ...NAMESPACES, "--", ...RUN_SCRIPT]
    default:
      return RUN_SCRIPT
  }
}

const confinement = (level: ProcessIsolation, user: RunUser | undefined): ReadonlyArray<string> => {
  if (level === "none") return []
  const as =
    user === undefined ? [] : ["--reuid", String(user.uid), "--regid", String(user.gid), "--clear-groups"]
  return ["setpriv", ...as, ...NO_RIGHTS, "--"]
}

export const hasNamespaces = (level: ProcessIsolation) =>
  level === "user+namespaces" || level === "namespaces"

/** Returns how far the script was read. It is read once the view is complete, whatever the state of the disk. */
const positionOf = (fd: number): number => {
  try {
    return Number(/^pos:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1] ?? 0)
  } catch {
    return 0 // the descriptor is closed: no caller is left
  }
}

const writeScript = Effect.fnUntraced(function* (folder: string, text: string) {
  const path = join(folder, `launch-${randomUUID()}`)
  const unlink = Effect.ignore(io(`remove ${path}`, () => fs.unlink(path)))
  yield* Effect.onError(
    io(`write ${path}`, () => fs.writeFile(path, text, { mode: 0o600, flag: "wx" })),
    () => unlink
  )
  return yield* Effect.all([openFile(path, "r"), openFile(path, "r+")]).pipe(Effect.ensuring(unlink))
})
export interface Machine {
  readonly covers: ReadonlyArray<Cover>
  readonly programs: ReadonlyArray<Programs>
  readonly table: ReadonlyArray<MountEntry>
  readonly stage: string
}

const flagsOf = (path: string, table: ReadonlyArray<MountEntry>) =>
  (mountOf(path, table)?.flags ?? []).filter((flag) => KEPT_FLAGS.includes(flag))
/** Returns the start function of a level. `tasks`: the limit of processes and threads of a uid. */
export const makeBegin = (level: ProcessIsolation, machine: Machine | undefined, tasks = 4096): Begin =>
  Effect.fnUntraced(function* ({ argv, cwd, env, folder, own: folders, shown, user }: Start) {
    const texts = [cwd, ...argv, ...Object.entries(env).flat()]
    if (texts.some((text) => text.includes("\0"))) {
      return yield* new LaunchFailed({ message: "a word or a variable contains a NUL character" })
    }
    const view = machine === undefined ? undefined : yield* viewOf(machine, { cwd, own: folders, shown })
    const [script, own] = yield* writeScript(
      folder,
      scriptText({
        ...(view === undefined ? {} : { view }),
        ...(user === undefined ? {} : { tasks }),
        confine: confinement(level, user),
        cwd,
        argv,
        env
      })
    )
    return {
      argv: argvOf(level),
      script: script.fd,
      missing: noProgram(argv[0], env.PATH ?? ""),
      hasBegun: () => positionOf(script.fd) > 0,
      clear: Effect.ignore(io("empty the script", () => own.truncate()))
    }
  })

const viewOf = Effect.fnUntraced(function* (
  machine: Machine,
  { cwd, own, shown }: Pick<Start, "cwd" | "own" | "shown">
) {
  const { covers, programs, stage } = machine
  // Shared folders may be on any file system.
  const table = shown.length === 0 ? machine.table : yield* mountTable
  const isCovered = (path: string) => covers.some(({ at }) => isIn(path, at))
  const all: Array<Shown> = programs.map((one) => ({
    ...one,
    read_only: true,
    flags: flagsOf(one.from, table)
  }))
  const realOf = (path: string) => io(`stat ${path}`, () => fs.realpath(path))
  for (const { path, read_only } of [{ path: cwd, read_only: false }, ...shown]) {
    const real = yield* realOf(path)
    const linked = join(yield* realOf(dirname(path)), basename(path))
    for (const to of new Set([real, linked])) {
      if (isCovered(to)) all.push({ from: real, to, read_only, flags: flagsOf(real, table) })
    }
  }
  return { covers, shown: all, stage, temporary: yield* realOf(own.temporary), log: yield* realOf(own.log) }
})
/** The names of the {@link Private} folders of a server in its folder. */
export const PRIVATE_NAMES = { temporary: "tmp", log: "log" } as const

/** Makes the private folders of a process; only its user can enter them. `log` is kept unless its owner has changed. */
const makePrivateFolders = Effect.fnUntraced(function* (folder: string, user: RunUser | undefined) {
  const make = Effect.fnUntraced(function* (name: string, keeps: boolean) {
    const path = join(folder, name)
    const found = keeps ? yield* lstat(path) : undefined
    if (found?.isDirectory() === true && found.uid === (user?.uid ?? process.geteuid?.())) return path
    yield* removeTree(path)
    yield* io(`create folder ${path}`, () => fs.mkdir(path, { mode: 0o700 }))
    if (user !== undefined) yield* io(`set the owner of ${path}`, () => fs.chown(path, user.uid, user.gid))
    return path
  })
  const { log, temporary } = PRIVATE_NAMES
  return { temporary: yield* make(temporary, false), log: yield* make(log, true) } satisfies Private
})

/** The interval between two checks whether a process has begun, in ms. */
const POLL_INTERVAL = 2

/** Waits until the isolation of a process is complete. */
const awaitBegin = Effect.fnUntraced(function* (started: Started, child: Child) {
  yield* Effect.raceFirst(
    Effect.repeat(Effect.sync(started.hasBegun), {
      until: (begun) => begun,
      schedule: Schedule.spaced(POLL_INTERVAL)
    }),
    Deferred.await(child.exited)
  )
  if (!started.hasBegun()) {
    if ((yield* Deferred.await(child.exited)) === NO_PROGRAM) return yield* started.missing
    return yield* new LaunchFailed({
      message: "the process cannot be isolated",
      next: "read the console, correct the cause"
    })
  }
  yield* started.clear
})

export interface Level {
  readonly level: ProcessIsolation
  readonly begin: Begin
  /** Returns the path of the temporary folder as the process sees it. */
  temporaryOf(folder: string): string
}

export interface ProcessStart extends Omit<Start, "own"> {
  /** The server or job, which marks its processes. */
  readonly name: string
  readonly terminal: boolean
  readonly input: number | "pipe"
  readonly output: number | "pipe"
  /** The group of the holder of a terminal. */
  readonly group?: string | undefined
  /** Returns the command that runs the isolated program. Default: the program. */
  readonly around?: (argv: Started["argv"]) => Started["argv"]
}

/** Starts a process. `begun` waits until its isolation is complete; `holder` has the streams of a terminal. */
export const launchProcess = Effect.fnUntraced(function* (
  { inherited, node }: { readonly inherited: Readonly<Record<string, string>>; readonly node: string },
  isolation: Level,
  { around = (argv) => argv, group, input, name, output, terminal, ...start }: ProcessStart
) {
  const { cwd, folder, user } = start
  const own = yield* makePrivateFolders(folder, user)
  const marker = { MUSTER_NODE: node, MUSTER_SERVER: name }
  const env = {
    ...(terminal ? TERMINAL_ENV : {}),
    ...inherited,
    HOME: cwd,
    TMPDIR: isolation.temporaryOf(own.temporary),
    ...start.env,
    ...marker
  }
  const started = yield* isolation.begin({ ...start, own, env })
  const held = terminal
    ? yield* startTerminal({ input, output, group, level: isolation.level, user })
    : undefined
  const [from, to] = held === undefined ? [input, output] : [held.terminal, held.terminal]
  const argv = around(started.argv)
  const child = yield* spawnChild(held === undefined ? argv : onTerminal(argv), {
    cwd: folder,
    // Only the marker: this environment stays visible for the lifetime of the process.
    env: { ...TOOL_ENV, ...marker },
    stdio: [from, to, to, started.script]
  })
  return { child, holder: held?.holder, begun: awaitBegin(started, child) }
})
