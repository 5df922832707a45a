/**
 * The isolation of plain processes from the daemon and from each other: by their own uid (`setpriv`), and by namespaces
 * that hide the daemon's data and other processes (`unshare`, `mount`; all of util-linux, 2.38 or later).
 */
import * as fs from "node:fs/promises"
import { dirname, join } from "node:path"
import { Effect, Option } from "effect"
import type { ProcessIsolation } from "../../contract/domain/Node.ts"
import {
  IoError,
  io,
  isDiskFull,
  listFolder,
  lstat,
  makeFolder,
  mountTable,
  removeTree
} from "../disk/fsio.ts"
import { isIn } from "../disk/mountTable.ts"
import { foundOnce, isNoRoom } from "../disk/remedy.ts"
import { runTool } from "../host/runTool.ts"
import { type Begin, hasNamespaces, type Level, type Machine, makeBegin } from "./isolatedStart.ts"
import type { Cover } from "./isolationScript.ts"
import { openProcessUsers, type ProcessUsers, type UidRange } from "./ProcessUsers.ts"
import { LaunchFailed, type RunUser } from "./Runtime.ts"
import { closedAbove, reachPrograms, realPath } from "./reachable.ts"

export interface IsolationOptions {
  /** With `required`, the runtime needs isolation; with `none`, servers run as the user of the daemon. */
  readonly mode: "auto" | "required" | "none"
  /** The uids for servers and software, if the daemon is root. */
  readonly uids: UidRange
  /** The limit of processes and threads of a uid. Default: 4096. */
  readonly tasks?: number
  readonly dataDir: string
  /** Files and folders that are hidden from servers; the folder of the node is one of them, or below one. */
  readonly hidden: ReadonlyArray<string>
  /** The levels to try, the best first. Default: all. Tests try fewer. */
  readonly levels?: ReadonlyArray<ProcessIsolation>
  /** See {@link openProcessUsers}. */
  readonly claimsDir?: string
}
export interface Isolation extends Level {
  readonly refused: LaunchFailed | undefined
  readonly users: ProcessUsers | undefined
  /** The number of processes above the program, from the one that runs `Started.argv`. */
  readonly above: number
}
const PROBE_TIMEOUT = 10_000

export const DEFAULT_UIDS: UidRange = { first: 70_000, last: 79_999 }

const isRoot = () => process.geteuid?.() === 0
const existing = Effect.fnUntraced(function* (paths: ReadonlyArray<string>) {
  const found = yield* Effect.forEach(paths, realPath)
  return [...new Set(found.filter((path) => path !== undefined))]
})
/** Inspects the host: the paths to cover, and the programs that the covers would hide. */
const inspectHost = Effect.fnUntraced(function* (
  { dataDir, hidden }: IsolationOptions,
  search: string,
  closes: boolean
) {
  const temporary = yield* existing(["/tmp", "/var/tmp"])
  const log = yield* existing(["/var/log"])
  // Any user can write there: to leave files, or to read those of another server.
  const memory = yield* existing(["/dev/shm", "/dev/mqueue", "/run/lock"])
  // Through the sockets of the user's session manager, a server could run programs outside the namespaces.
  const session = closes ? [] : [`/run/user/${process.geteuid?.()}`]
  const secret = yield* existing([dataDir, ...hidden, ...session])
  const secrets = yield* Effect.forEach(secret, (path) =>
    Effect.map(
      io(`stat ${path}`, () => fs.stat(path)),
      (stats): Cover => ({
        at: path,
        with: stats.isDirectory() ? "nothing" : "no content"
      })
    )
  )
  const gates = closes ? yield* Effect.forEach(secret, (path) => closedAbove(dirname(path))) : []
  const open: ReadonlyArray<Cover> = [
    ...temporary.map((at): Cover => ({ at, with: "temporary" })),
    ...log.map((at): Cover => ({ at, with: "log" })),
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
  const stage = join(yield* io(dataDir, () => fs.realpath(dataDir)), "stage")
  for (const index of covers.keys()) yield* makeFolder(join(stage, String(index)))
  return { covers, programs: reached.programs, table: yield* mountTable, stage } satisfies Machine
})
/** The folder for the script of a probe if the disk is full. */
const MEMORY = "/dev/shm"

/** Empties a folder that the user of a probe could write to, and closes it to that user. */
const takeBack = Effect.fnUntraced(function* (path: string) {
  for (const name of yield* listFolder(path)) yield* removeTree(join(path, name))
  const [uid, gid] = [process.geteuid?.(), process.getegid?.()]
  if (uid !== undefined && gid !== undefined) {
    yield* io(`set the owner of ${path}`, () => fs.chown(path, uid, gid))
  }
})
/** Runs a process as servers are run, and returns why that fails. A later probe needs no room on the disk. */
const probe = Effect.fnUntraced(
  function* (begin: Begin, options: IsolationOptions, user: RunUser | undefined) {
    const folder = join(options.dataDir, ".isolation")
    const [cwd, temporary, secret] = [join(folder, "files"), join(folder, "tmp"), join(folder, "secret")]
    const own = [cwd, temporary]
    yield* Effect.acquireRelease(
      Effect.forEach(own, (path) => Effect.andThen(makeFolder(path), takeBack(path))),
      () => Effect.ignore(Effect.forEach(own, takeBack))
    )
    yield* io(`write ${secret}`, () => fs.writeFile(secret, "", { mode: 0o600 }))
    yield* io(`write ${cwd}`, () => fs.writeFile(join(cwd, "before"), ""))
    for (const path of own) {
      if (user !== undefined) yield* io(`set the owner of ${path}`, () => fs.chown(path, user.uid, user.gid))
    }
    yield* io(`open ${folder}`, () => fs.chmod(folder, 0o711))
    const test = `[ ! -r "$SECRET" ] || { echo "the data folder is visible" >&2; exit 1; }`
    const beginFrom = (folder: string) =>
      begin({
        folder,
        own: { temporary, log: temporary },
        cwd,
        shown: [],
        // A renamed file proves write access and needs no room.
        argv: ["/bin/sh", "-c", `${test}; exec mv before after`],
        env: { PATH: "/usr/bin:/bin", SECRET: secret },
        user
      })
    const { argv, script } = yield* Effect.catchIf(beginFrom(folder), isNoRoom, (full) =>
      Effect.mapError(beginFrom(MEMORY), () => full)
    )
    const result = yield* runTool(argv, { stdio: ["ignore", "ignore", "pipe", script] }).pipe(
      Effect.timeoutOption(PROBE_TIMEOUT)
    )
    if (Option.isNone(result)) return "the probe timed out"
    const { code, stderr } = result.value
    if (code === 0 && (yield* lstat(join(cwd, "after"))) !== undefined) return undefined
    return stderr.trim().split("\n")[0] ?? `the probe exited with ${code}`
  },
  Effect.scoped,
  Effect.catchTag("LaunchFailed", ({ message }) => Effect.succeed(message))
)
/** Lets servers pass through the folders of the service to their own folders; its files stay closed. */
const openFolders = Effect.fnUntraced(function* ({ dataDir, hidden }: IsolationOptions) {
  const real = yield* io(dataDir, () => fs.realpath(dataDir))
  const own = (yield* existing([dataDir, ...hidden])).filter((path) => isIn(real, path))
  for (const top of own) {
    for (let folder = real; isIn(folder, top); folder = dirname(folder)) {
      const { mode } = yield* io(`stat ${folder}`, () => fs.stat(folder))
      yield* io(`open ${folder}`, () => fs.chmod(folder, mode | 0o001))
    }
  }
  const gate = yield* closedAbove(real)
  if (gate !== undefined) {
    return yield* new IoError({ code: "EACCES", message: `other users cannot enter ${gate}` })
  }
})
const WARNING = "servers run as this user and can read its keys and each other's files"

/** Returns the levels that may work, the best first. */
const levelsToTry = ({ levels, mode }: IsolationOptions): ReadonlyArray<ProcessIsolation> => {
  const all: ReadonlyArray<ProcessIsolation> =
    mode === "none" ? [] : isRoot() ? ["user+namespaces", "user", "namespaces"] : ["namespaces"]
  return all.filter((level) => levels?.includes(level) ?? true)
}

const hasUser = (level: ProcessIsolation) => level === "user+namespaces" || level === "user"

/** The start function of a level, or why the level does not work. `full`: the disk had no room for the attempt. */
type Attempt = { readonly begin: Begin } | { readonly reason: string; readonly full: boolean }

const attempt = Effect.fnUntraced(
  function* (
    level: ProcessIsolation,
    options: IsolationOptions,
    search: string
  ): Effect.fn.Return<Attempt, IoError> {
    if (level === "user") yield* openFolders(options)
    const machine = hasNamespaces(level)
      ? yield* inspectHost(options, search, level === "user+namespaces")
      : undefined
    const begin = makeBegin(level, machine, options.tasks)
    const { last } = options.uids
    const reason = yield* probe(begin, options, hasUser(level) ? { uid: last, gid: last } : undefined)
    // The text of a failed probe does not say whether the disk is full.
    return reason === undefined ? { begin } : { reason, full: yield* isDiskFull(options.dataDir) }
  },
  Effect.catchTag("IoError", (error) =>
    Effect.succeed<Attempt>({ reason: error.message, full: isNoRoom(error) })
  )
)

/** Returns the best level that works, if any. @error LaunchFailed the disk has no room to try a level */
const findLevel = Effect.fnUntraced(function* (options: IsolationOptions, search: string) {
  const reasons: Array<string> = []
  for (const level of levelsToTry(options)) {
    const tried = yield* attempt(level, options, search)
    if ("begin" in tried) return { level, begin: tried.begin, reasons }
    reasons.push(`${level}: ${tried.reason}`)
    // A server that fills the disk must not lower the level of the node.
    if (tried.full) {
      return yield* new LaunchFailed({
        code: "ENOSPC",
        message: `plain processes cannot be isolated: ${reasons.join("; ")}`,
        next: "free space on the disk of the node"
      })
    }
  }
  return { level: "none" as const, begin: undefined, reasons }
})

type FoundLevel = Effect.Success<ReturnType<typeof findLevel>>

const withoutIsolation = Effect.fnUntraced(function* (mode: IsolationOptions["mode"], why: string) {
  const refused =
    mode === "required"
      ? new LaunchFailed({
          message: `plain processes cannot be isolated, and MUSTER_PROCESS_ISOLATION is required: ${why}`,
          next: "run the daemon as root, allow user namespaces, or run servers in containers"
        })
      : undefined
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
  } satisfies Isolation
})

/**
 * Opens the best level that works, and logs it. `search` is the search path of servers. A full disk hides the level:
 * `current` fails then, and tries again with its next use. The uids of the node, if it has any, are known also then.
 */
export const openIsolation = Effect.fnUntraced(function* (
  options: IsolationOptions,
  node: string,
  search: string
) {
  const { claimsDir, dataDir, mode, uids: range } = options
  const first = yield* Effect.result(findLevel(options, search))
  // Servers that run have their uids also while the level is unknown.
  const needsUsers =
    first._tag === "Failure" ? levelsToTry(options).some(hasUser) : hasUser(first.success.level)
  const users = needsUsers
    ? yield* openProcessUsers({ node, dataDir, range, ...(claimsDir === undefined ? {} : { claimsDir }) })
    : undefined

  const isolationOf = Effect.fnUntraced(function* ({ begin, level, reasons }: FoundLevel) {
    if (begin === undefined) {
      const why = mode === "none" ? "MUSTER_PROCESS_ISOLATION is none" : reasons.join("; ")
      return yield* withoutIsolation(mode, why)
    }
    const lesser = reasons.length === 0 ? "" : ` (${reasons.join("; ")})`
    yield* Effect.logInfo(`plain processes are isolated by ${level}${lesser}`)
    return {
      level,
      begin,
      users: hasUser(level) ? users : undefined,
      above: hasNamespaces(level) ? 2 : 0,
      temporaryOf: (folder) => (hasNamespaces(level) ? "/tmp" : folder),
      refused: undefined
    } satisfies Isolation
  })
  if (first._tag === "Success") return { users, current: Effect.succeed(yield* isolationOf(first.success)) }
  const { message, next } = first.failure
  yield* Effect.logError(`${message}; ${next}: no plain process starts until then`)
  return {
    users,
    current: yield* foundOnce(dataDir, Effect.flatMap(findLevel(options, search), isolationOf))
  }
})
