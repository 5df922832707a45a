/**
 * How plain processes are kept from the daemon and from each other: by a uid of their own (`setpriv`), and by namespaces
 * in which they see neither the daemon's data nor other processes (`unshare`, `mount`; all of util-linux, 2.38 or later).
 */
import { randomUUID } from "node:crypto"
import { readFileSync } from "node:fs"
import * as fs from "node:fs/promises"
import { dirname, join } from "node:path"
import { Deferred, Effect, Schedule, type Schema, type Scope } from "effect"
import type { ProcessIsolation } from "../../domain/SystemInfo.ts"
import { IoError, io, lstat, makeFolder, mountTable, openFile, removeTree } from "../disk/fsio.ts"
import { type MountEntry, mountOf } from "../disk/mountTable.ts"
import { type Cover, type Shown, scriptText } from "./isolationScript.ts"
import { openProcessUsers, type ProcessUsers, type UidRange } from "./ProcessUsers.ts"
import { LaunchFailed, type RunUser } from "./Runtime.ts"
import { closedAbove, isBelow, type Programs, reachPrograms, realPath } from "./reachable.ts"
import { type Child, spawnChild } from "./spawnChild.ts"

export interface IsolationOptions {
  /** - `required`: without isolation the runtime is not offered; `none`: servers run as the user of the daemon. */
  readonly mode: "auto" | "required" | "none"
  /** Uids for servers and software, where the daemon is root. */
  readonly uids: UidRange
  /** Folder of the node. */
  readonly data_dir: string
  /** Files and folders that no server may see; the folder of the node lies in one of them, or is one. */
  readonly hidden: ReadonlyArray<string>
  /** Ways that are tried, the best first. Default: all. Tests try fewer. */
  readonly levels?: ReadonlyArray<ProcessIsolation>
  /** See {@link openProcessUsers}. */
  readonly claims_dir?: string
}

/** Something to start. */
export interface Start {
  /** Folder of the daemon's own; for a moment a file lies in it. */
  readonly folder: string
  /** What the process sees as `/tmp`, where it sees a file system of its own. */
  readonly temporary: string
  readonly cwd: string
  /** Further folders that it sees, though they lie where it would see nothing. */
  readonly shown: ReadonlyArray<{ readonly path: string; readonly read_only: boolean }>
  readonly argv: readonly [string, ...ReadonlyArray<string>]
  /** Its environment; nothing else of it is seen anywhere. */
  readonly env: Readonly<Record<string, string>>
  readonly user: RunUser | undefined
}

/** A process that can be spawned: `script` as its descriptor 3, with {@link SPAWN_ENV} and nothing of the server's. */
export interface Started {
  readonly argv: readonly [string, ...ReadonlyArray<string>]
  readonly script: number
  /** Whether the isolation is complete and the program is about to run. */
  readonly hasBegun: () => boolean
  /** Empties the script, which processes that stay have open. */
  readonly clear: Effect.Effect<void>
}

export interface Isolation {
  readonly level: ProcessIsolation
  /** Why plain processes are not offered; undefined: they are. */
  readonly refused: LaunchFailed | undefined
  /** Absent where everything runs as the user of the daemon. */
  readonly users: ProcessUsers | undefined
  /** How many processes stay above the program, from the one that runs {@link Started}`.argv`. */
  readonly above: number
  /** Where a process finds its temporary folder. */
  temporaryOf(folder: string): string
  /** Writes the script of a process, open for the scope. */
  begin(start: Start): Effect.Effect<Started, IoError | LaunchFailed, Scope.Scope>
}

/** Where distributions have the tools; the search path of the daemon may lack the administrator's folders. */
export const SPAWN_ENV: Readonly<Record<string, string>> = {
  PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/wrappers/bin:/run/current-system/sw/bin",
  LC_ALL: "C"
}

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
/** What a probe may take, in ms. */
const PROBE_PATIENCE = 10_000
/** Flags of a mount that a mount of the same file system keeps. */
const KEPT_FLAGS = ["noexec", "ro"]

/** Uids of servers where none are set. */
export const DEFAULT_UIDS: UidRange = { first: 70_000, last: 79_999 }

const isRoot = () => process.geteuid?.() === 0

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

const hasNamespaces = (level: ProcessIsolation) => level === "user+namespaces" || level === "namespaces"

/** The script's descriptor is read once the view is complete, so that its position says so, whatever the disk does. */
const positionOf = (fd: number): number => {
  try {
    return Number(/^pos:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "latin1"))?.[1] ?? 0)
  } catch {
    return 0 // the descriptor is closed: nobody asks any more
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

/** What of the machine servers see otherwise; the same for all. */
interface Machine {
  readonly covers: ReadonlyArray<Cover>
  readonly programs: ReadonlyArray<Programs>
  readonly table: ReadonlyArray<MountEntry>
  readonly stage: string
}

const flagsOf = (path: string, table: ReadonlyArray<MountEntry>) =>
  (mountOf(path, table)?.flags ?? []).filter((flag) => KEPT_FLAGS.includes(flag))

const existing = Effect.fnUntraced(function* (paths: ReadonlyArray<string>) {
  const found = yield* Effect.forEach(paths, realPath)
  return [...new Set(found.filter((path) => path !== undefined))]
})

/** Looks at the machine: what is covered, and which programs that would hide. */
const lookAround = Effect.fnUntraced(function* (
  { data_dir, hidden }: IsolationOptions,
  search: string,
  closes: boolean
) {
  const temporary = yield* existing(["/tmp", "/var/tmp"])
  // Anybody can write there: to leave files behind, or to read what another server has left.
  const memory = yield* existing(["/dev/shm", "/dev/mqueue", "/run/lock"])
  // The sockets of the user's session manager would run anything outside the namespaces.
  const session = closes ? [] : [`/run/user/${process.geteuid?.()}`]
  const secret = yield* existing([data_dir, ...hidden, ...session])
  const secrets = yield* Effect.forEach(secret, (path) =>
    Effect.map(
      io(`look at ${path}`, () => fs.stat(path)),
      (stats): Cover => ({
        at: path,
        with: stats.isDirectory() ? "nothing" : "no content"
      })
    )
  )
  const gates = closes ? yield* Effect.forEach(secret, (path) => closedAbove(dirname(path))) : []
  const open: ReadonlyArray<Cover> = [
    ...temporary.map((at): Cover => ({ at, with: "temporary" })),
    ...memory.map((at): Cover => ({ at, with: "memory" })),
    ...secrets,
    ...gates.flatMap((at): ReadonlyArray<Cover> => (at === undefined ? [] : [{ at, with: "nothing" }]))
  ]
  const reached = yield* reachPrograms({
    search,
    covered: open.filter((cover) => cover.with !== "no content").map(({ at }) => at),
    hidden: secret,
    closes
  })
  const covers = [...open, ...reached.closed.map((at): Cover => ({ at, with: "nothing" }))]
  const stage = join(yield* io(data_dir, () => fs.realpath(data_dir)), "stage")
  for (const index of covers.keys()) yield* makeFolder(join(stage, String(index)))
  const machine: Machine = { covers, programs: reached.programs, table: yield* mountTable, stage }
  return machine
})

/** Makes what one level needs to start processes. */
const makeBegin = (level: ProcessIsolation, machine: Machine | undefined): Isolation["begin"] =>
  Effect.fnUntraced(function* ({ argv, cwd, env, folder, shown, temporary, user }: Start) {
    const texts = [cwd, ...argv, ...Object.entries(env).flat()]
    if (texts.some((text) => text.includes("\0"))) {
      return yield* new LaunchFailed({ message: "a word or a variable contains a NUL character" })
    }
    const view = machine === undefined ? undefined : yield* viewOf(machine, { cwd, shown, temporary })
    const [script, own] = yield* writeScript(
      folder,
      scriptText({
        ...(view === undefined ? {} : { view }),
        confine: confinement(level, user),
        cwd,
        argv,
        env
      })
    )
    return {
      argv: argvOf(level),
      script: script.fd,
      hasBegun: () => positionOf(script.fd) > 0,
      clear: Effect.ignore(io("empty the script", () => own.truncate()))
    }
  })

const viewOf = Effect.fnUntraced(function* (
  machine: Machine,
  { cwd, shown, temporary }: Pick<Start, "cwd" | "shown" | "temporary">
) {
  const { covers, programs, stage } = machine
  // What servers share with others may lie anywhere.
  const table = shown.length === 0 ? machine.table : yield* mountTable
  const isCovered = (path: string) => covers.some(({ at }) => isBelow(path, at))
  const all: Array<Shown> = programs.map((one) => ({
    ...one,
    read_only: true,
    flags: flagsOf(one.from, table)
  }))
  for (const { path, read_only } of [{ path: cwd, read_only: false }, ...shown]) {
    const real = yield* io(`look at ${path}`, () => fs.realpath(path))
    const near = join(
      yield* io(`look at ${path}`, () => fs.realpath(dirname(path))),
      path.slice(path.lastIndexOf("/") + 1)
    )
    for (const to of new Set([real, near])) {
      if (isCovered(to)) all.push({ from: real, to, read_only, flags: flagsOf(real, table) })
    }
  }
  return { covers, shown: all, stage, temporary: yield* io(temporary, () => fs.realpath(temporary)) }
})

/** Runs a process in the very way that servers are run, and looks whether it was kept from what is hidden. */
const probe = Effect.fnUntraced(
  function* (begin: Isolation["begin"], options: IsolationOptions, user: RunUser | undefined) {
    const folder = join(options.data_dir, ".isolation")
    const [cwd, temporary, secret] = [join(folder, "files"), join(folder, "tmp"), join(folder, "secret")]
    yield* Effect.acquireRelease(Effect.andThen(removeTree(folder), makeFolder(folder)), () =>
      Effect.ignore(removeTree(folder))
    )
    for (const path of [cwd, temporary]) {
      yield* makeFolder(path)
      if (user !== undefined) yield* io(`give ${path}`, () => fs.chown(path, user.uid, user.gid))
    }
    yield* io(`write ${secret}`, () => fs.writeFile(secret, "", { mode: 0o600 }))
    yield* io(`open ${folder}`, () => fs.chmod(folder, 0o711))
    const test = `[ ! -r "$SECRET" ] && echo > written`
    const { argv, script } = yield* begin({
      folder,
      temporary,
      cwd,
      shown: [],
      argv: [
        "/bin/sh",
        "-c",
        `{ ${test}; } 2>/dev/null || { echo "the data folder is in sight" >&2; exit 1; }`
      ],
      env: { PATH: "/usr/bin:/bin", SECRET: secret },
      user
    })
    const child = yield* Effect.acquireRelease(
      spawnChild(argv, { env: SPAWN_ENV, stdio: ["ignore", "ignore", "pipe", script] }),
      ({ process }) => Effect.sync(() => process.kill("SIGKILL"))
    )
    let said = ""
    const closed = Deferred.makeUnsafe<void>()
    child.process.stderr?.on("data", (bytes: Buffer) => {
      if (said.length < 4096) said += bytes.toString()
    })
    child.process.once("close", () => Deferred.doneUnsafe(closed, Effect.void))
    const code = yield* Deferred.await(child.exited).pipe(
      Effect.tap(Deferred.await(closed)),
      Effect.timeoutOption(PROBE_PATIENCE)
    )
    if (code._tag === "None") return "it does not end"
    if (code.value === 0 && (yield* lstat(join(cwd, "written"))) !== undefined) return undefined
    return said.trim().split("\n")[0] ?? `it exited with ${code.value}`
  },
  Effect.scoped,
  Effect.catch((error: IoError | LaunchFailed) => Effect.succeed(error.message))
)

/** Lets servers pass through the folders of the service to their own; their files stay closed. */
const openFolders = Effect.fnUntraced(function* ({ data_dir, hidden }: IsolationOptions) {
  const real = yield* io(data_dir, () => fs.realpath(data_dir))
  const own = (yield* existing([data_dir, ...hidden])).filter((path) => isBelow(real, path))
  for (const top of own) {
    for (let folder = real; isBelow(folder, top); folder = dirname(folder)) {
      const { mode } = yield* io(`look at ${folder}`, () => fs.stat(folder))
      yield* io(`open ${folder}`, () => fs.chmod(folder, mode | 0o001))
    }
  }
  const gate = yield* closedAbove(real)
  if (gate !== undefined) {
    return yield* new IoError({ code: "EACCES", message: `other users cannot enter ${gate}` })
  }
})

/** Makes the temporary folder of a process anew: only its user can look into it. */
export const makeOwnFolder = Effect.fnUntraced(function* (folder: string, user: RunUser | undefined) {
  const path = join(folder, "tmp")
  yield* removeTree(path)
  yield* io(`create folder ${path}`, () => fs.mkdir(path, { mode: 0o700 }))
  if (user !== undefined) yield* io(`give ${path}`, () => fs.chown(path, user.uid, user.gid))
  return path
})

/** Pause between two looks whether a process has begun, in ms. */
const LOOK = 2

/** Waits until the isolation of a process is complete, so that no signal meets what makes it. */
export const untilBegun = Effect.fnUntraced(function* (started: Started, child: Child) {
  yield* Effect.raceFirst(
    Effect.repeat(Effect.sync(started.hasBegun), {
      until: (begun) => begun,
      schedule: Schedule.spaced(LOOK)
    }),
    Deferred.await(child.exited)
  )
  if (!started.hasBegun()) {
    return yield* new LaunchFailed({
      message: "the process cannot be isolated",
      next: "read its console, correct the cause"
    })
  }
  yield* started.clear
})

/** What says that a way was not tried, because nothing could be written. `unshare` has other words where it is refused. */
const fullDisk = /: disk full/

const WARNING = "servers run as this user and can read its keys and each other's files"

/** The ways that may work, the best first. */
const candidates = ({ levels, mode }: IsolationOptions): ReadonlyArray<ProcessIsolation> => {
  const all: ReadonlyArray<ProcessIsolation> =
    mode === "none" ? [] : isRoot() ? ["user+namespaces", "user", "namespaces"] : ["namespaces"]
  return all.filter((level) => levels?.includes(level) ?? true)
}

const ofUser = (level: ProcessIsolation) => level === "user+namespaces" || level === "user"

/** Tries one way by really running something; answers how processes are begun, or why it does not work. */
const attempt = Effect.fnUntraced(
  function* (level: ProcessIsolation, options: IsolationOptions, search: string) {
    if (level === "user") yield* openFolders(options)
    const machine = hasNamespaces(level)
      ? yield* lookAround(options, search, level === "user+namespaces")
      : undefined
    const begin = makeBegin(level, machine)
    const { last } = options.uids
    const reason = yield* probe(begin, options, ofUser(level) ? { uid: last, gid: last } : undefined)
    return reason === undefined ? { begin } : { reason }
  },
  Effect.catchTag("IoError", ({ message }) => Effect.succeed({ reason: message }))
)

/**
 * Finds the best way that works, and says so in the log.
 *
 * @param node identity of the node and its data folder; `search`: where servers look for programs
 */
export const openIsolation = Effect.fnUntraced(function* (
  options: IsolationOptions,
  node: string,
  search: string
): Effect.fn.Return<Isolation, IoError | Schema.SchemaError> {
  const reasons: Array<string> = []
  for (const level of candidates(options)) {
    const { begin, reason } = {
      begin: undefined,
      reason: undefined,
      ...(yield* attempt(level, options, search))
    }
    if (begin === undefined) {
      reasons.push(`${level}: ${reason}`)
      // A server that fills the disk must not bring the node to a lesser level.
      if (fullDisk.test(reason ?? "")) break
      continue
    }
    const lesser = reasons.length === 0 ? "" : ` (${reasons.join("; ")})`
    yield* Effect.logInfo(`plain processes are isolated by ${level}${lesser}`)
    const { claims_dir, data_dir, uids: range } = options
    const users = ofUser(level)
      ? yield* openProcessUsers({
          node,
          data_dir,
          range,
          ...(claims_dir === undefined ? {} : { claims_dir })
        })
      : undefined
    const above = hasNamespaces(level) ? 2 : 0
    const temporaryOf = (folder: string) => (hasNamespaces(level) ? "/tmp" : folder)
    return { level, begin, users, above, temporaryOf, refused: undefined }
  }
  const why = options.mode === "none" ? "MUSTER_PROCESS_ISOLATION is none" : reasons.join("; ")
  const refused = fullDisk.test(why)
    ? new LaunchFailed({
        message: `plain processes cannot be isolated: ${why}`,
        next: "free space on the disk of the node, then start it again"
      })
    : options.mode !== "required"
      ? undefined
      : new LaunchFailed({
          message: `plain processes cannot be isolated, and MUSTER_PROCESS_ISOLATION is required: ${why}`,
          next: "run the daemon as root, allow user namespaces, or let servers run in containers"
        })
  yield* refused === undefined
    ? Effect.logWarning(`${WARNING}: ${why}`)
    : Effect.logError(`${refused.message}; ${refused.next}`)
  return {
    level: "none",
    begin: makeBegin("none", undefined),
    users: undefined,
    above: 0,
    temporaryOf: (folder) => folder,
    refused
  }
})
