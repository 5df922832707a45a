/**
 * The isolation of plain processes from the daemon and from each other: by their own uid (`setpriv`), and by namespaces
 * that hide the daemon's data and other processes (`unshare`, `mount`; all of util-linux, 2.38 or later).
 */
import * as fs from "node:fs/promises"
import { dirname, join } from "node:path"
import { Effect, Option, type Schema } from "effect"
import type { ProcessIsolation } from "../../domain/SystemInfo.ts"
import { IoError, io, lstat, makeFolder, mountTable, removeTree } from "../disk/fsio.ts"
import { isIn } from "../disk/mountTable.ts"
import { runTool } from "../process/runTool.ts"
import { type Begin, hasNamespaces, type Machine, makeBegin } from "./isolatedStart.ts"
import type { Cover } from "./isolationScript.ts"
import { openProcessUsers, type ProcessUsers, type UidRange } from "./ProcessUsers.ts"
import { LaunchFailed, type RunUser } from "./Runtime.ts"
import { closedAbove, reachPrograms, realPath } from "./reachable.ts"

export interface IsolationOptions {
  /** - `required`: without isolation the runtime is not offered; `none`: servers run as the user of the daemon. */
  readonly mode: "auto" | "required" | "none"
  /** The uids for servers and software, if the daemon is root. */
  readonly uids: UidRange
  /** The folder of the node. */
  readonly dataDir: string
  /** Files and folders that are hidden from servers; the folder of the node is one of them, or below one. */
  readonly hidden: ReadonlyArray<string>
  /** The levels to try, the best first. Default: all. Tests try fewer. */
  readonly levels?: ReadonlyArray<ProcessIsolation>
  /** See {@link openProcessUsers}. */
  readonly claimsDir?: string
}
export interface Isolation {
  readonly level: ProcessIsolation
  /** Why plain processes are not offered; undefined: they are. */
  readonly refused: LaunchFailed | undefined
  /** Absent: everything runs as the user of the daemon. */
  readonly users: ProcessUsers | undefined
  /** The number of processes above the program, from the one that runs `Started.argv`. */
  readonly above: number
  /** Returns the path of the temporary folder as the process sees it. */
  temporaryOf(folder: string): string
  readonly begin: Begin
}
/** The timeout of a probe, in ms. */
const PROBE_TIMEOUT = 10_000

/** The default uids of servers. */
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
  const machine: Machine = { covers, programs: reached.programs, table: yield* mountTable, stage }
  return machine
})
/** Runs a process exactly as servers are run, and checks that hidden files are hidden; returns why not. */
const probe = Effect.fnUntraced(
  function* (begin: Begin, options: IsolationOptions, user: RunUser | undefined) {
    const folder = join(options.dataDir, ".isolation")
    const [cwd, temporary, secret] = [join(folder, "files"), join(folder, "tmp"), join(folder, "secret")]
    yield* Effect.acquireRelease(Effect.andThen(removeTree(folder), makeFolder(folder)), () =>
      Effect.ignore(removeTree(folder))
    )
    for (const path of [cwd, temporary]) {
      yield* makeFolder(path)
      if (user !== undefined) yield* io(`set the owner of ${path}`, () => fs.chown(path, user.uid, user.gid))
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
        `{ ${test}; } 2>/dev/null || { echo "the data folder is visible" >&2; exit 1; }`
      ],
      env: { PATH: "/usr/bin:/bin", SECRET: secret },
      user
    })
    const result = yield* runTool(argv, { stdio: ["ignore", "ignore", "pipe", script] }).pipe(
      Effect.timeoutOption(PROBE_TIMEOUT)
    )
    if (Option.isNone(result)) return "the probe timed out"
    const { code, stderr } = result.value
    if (code === 0 && (yield* lstat(join(cwd, "written"))) !== undefined) return undefined
    return stderr.trim().split("\n")[0] ?? `the probe exited with ${code}`
  },
  Effect.scoped,
  Effect.catch((error: IoError | LaunchFailed) => Effect.succeed(error.message))
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
/** The reason of a level that was not tried because the disk is full; `unshare` reports refusals with other texts. */
const fullDisk = /: disk full/

const WARNING = "servers run as this user and can read its keys and each other's files"

/** Returns the levels that may work, the best first. */
const levelsToTry = ({ levels, mode }: IsolationOptions): ReadonlyArray<ProcessIsolation> => {
  const all: ReadonlyArray<ProcessIsolation> =
    mode === "none" ? [] : isRoot() ? ["user+namespaces", "user", "namespaces"] : ["namespaces"]
  return all.filter((level) => levels?.includes(level) ?? true)
}

const hasUser = (level: ProcessIsolation) => level === "user+namespaces" || level === "user"

/** The start function of a level, or why the level does not work. */
type Attempt = { readonly begin: Begin } | { readonly reason: string }

/** Tries a level by a probe. */
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
    const begin = makeBegin(level, machine)
    const { last } = options.uids
    const reason = yield* probe(begin, options, hasUser(level) ? { uid: last, gid: last } : undefined)
    return reason === undefined ? { begin } : { reason }
  },
  Effect.catchTag("IoError", ({ message }) => Effect.succeed<Attempt>({ reason: message }))
)

/** Returns why plain processes are not offered if no level works; undefined: they are, without isolation. */
const refusalFor = (mode: IsolationOptions["mode"], why: string): LaunchFailed | undefined => {
  if (fullDisk.test(why)) {
    return new LaunchFailed({
      message: `plain processes cannot be isolated: ${why}`,
      next: "free space on the disk of the node, then start it again"
    })
  }
  if (mode !== "required") return undefined
  return new LaunchFailed({
    message: `plain processes cannot be isolated, and MUSTER_PROCESS_ISOLATION is required: ${why}`,
    next: "run the daemon as root, allow user namespaces, or run servers in containers"
  })
}

/**
 * Opens the best level that works, and logs it.
 * @param node identity of the node and its data folder; `search`: the search path of servers
 */
export const openIsolation = Effect.fnUntraced(function* (
  options: IsolationOptions,
  node: string,
  search: string
): Effect.fn.Return<Isolation, IoError | Schema.SchemaError> {
  const reasons: Array<string> = []
  for (const level of levelsToTry(options)) {
    const tried = yield* attempt(level, options, search)
    if ("reason" in tried) {
      reasons.push(`${level}: ${tried.reason}`)
      // A server that fills the disk must not lower the level of the node.
      if (fullDisk.test(tried.reason)) break
      continue
    }
    const lesser = reasons.length === 0 ? "" : ` (${reasons.join("; ")})`
    yield* Effect.logInfo(`plain processes are isolated by ${level}${lesser}`)
    const { claimsDir, dataDir, uids: range } = options
    const users = hasUser(level)
      ? yield* openProcessUsers({
          node,
          dataDir,
          range,
          ...(claimsDir === undefined ? {} : { claimsDir })
        })
      : undefined
    const above = hasNamespaces(level) ? 2 : 0
    const temporaryOf = (folder: string) => (hasNamespaces(level) ? "/tmp" : folder)
    return { level, begin: tried.begin, users, above, temporaryOf, refused: undefined }
  }
  const why = options.mode === "none" ? "MUSTER_PROCESS_ISOLATION is none" : reasons.join("; ")
  const refused = refusalFor(options.mode, why)
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
