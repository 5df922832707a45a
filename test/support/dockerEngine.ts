/** A real Docker engine for tests: one that runs already, or one that the test run starts. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { connect } from "node:net"
import { tmpdir } from "node:os"
import { delimiter, dirname, join } from "node:path"
import Docker from "dockerode"
import { Context, Effect, Layer, Schedule } from "effect"
import { sharedOfRun } from "./sharedOfRun.ts"
import { temporaryFolder, temporaryFolderIn } from "./temporaryFolder.ts"

const STANDARD_SOCKET = "/var/run/docker.sock"
/** One started engine at a time: two would conflict over the bridge and its addresses. */
const LOCK = join(tmpdir(), "muster-test-docker.lock")
export const TEST_IMAGE = "muster-test/busybox:1"

const findProgram = (name: string) =>
  [...(process.env.PATH ?? "").split(delimiter), "/usr/sbin", "/sbin"]
    .map((folder) => join(folder, name))
    .find((path) => existsSync(path))

/** Whether a program listens: the socket of a killed engine remains. */
const listens = (path: string) =>
  Effect.callback<boolean>((resume) => {
    const socket = connect(path)
    const settle = (answer: boolean) => {
      socket.destroy()
      resume(Effect.succeed(answer))
    }
    socket.once("connect", () => settle(true)).once("error", () => settle(false))
  })

const given = process.env.MUSTER_TEST_DOCKER_SOCKET
const [running] = await Effect.runPromise(
  Effect.filter(
    [given, STANDARD_SOCKET].filter((path) => path !== undefined),
    listens
  )
)
const dockerd = findProgram("dockerd")
const busybox = findProgram("busybox")
const perl = findProgram("perl")

/** Whether a program is statically linked. */
const isStatic = (path: string) => !readFileSync(path).includes("/lib64/ld-linux")

/** The reason why no engine is available; undefined if one is. */
export const missingEngine: string | undefined =
  busybox === undefined || !isStatic(busybox)
    ? "busybox-static is not installed (apt-get install busybox-static)"
    : perl === undefined
      ? "perl is not installed"
      : running !== undefined
        ? undefined
        : dockerd === undefined
          ? "dockerd is not installed (apt-get install docker.io)"
          : process.getuid?.() !== 0
            ? "dockerd can only be started by root"
            : undefined

/** Tests run if an engine is available; in CI it is required. */
export const withEngine = missingEngine === undefined || process.env.CI !== undefined
/** Appended to the titles of tests that require an engine. */
export const engineNote = missingEngine === undefined ? "" : ` (needs a Docker engine: ${missingEngine})`

const alive = (pid: number) => existsSync(`/proc/${pid}`)

const takeLock = Effect.sync(() => {
  try {
    mkdirSync(LOCK)
    writeFileSync(join(LOCK, "pid"), String(process.pid))
    return true
  } catch {
    const holder = existsSync(join(LOCK, "pid")) ? Number(readFileSync(join(LOCK, "pid"), "utf8")) : 0
    if (holder > 0 && !alive(holder)) rmSync(LOCK, { recursive: true, force: true })
    return false
  }
})

const lock = Effect.acquireRelease(
  Effect.repeat(takeLock, { until: (taken) => taken, schedule: Schedule.spaced(100) }),
  () => Effect.sync(() => rmSync(LOCK, { recursive: true, force: true }))
)

/** An engine for one test, which can stop and start it. */
export interface OwnEngine {
  readonly socket: string
  readonly docker: Docker
  /** Sends a signal and waits until the engine has exited; its settings decide whether containers run on. */
  readonly kill: (signal: NodeJS.Signals) => Effect.Effect<void>
  /** Starts the engine on the same data and waits until it responds. */
  readonly start: Effect.Effect<void>
}

/** Kills the processes of an engine, found by its folder in their command lines. */
const endProcessesOf = (folder: string) => {
  for (const pid of readdirSync("/proc").filter(
    (name) => /^\d+$/.test(name) && name !== String(process.pid)
  )) {
    const path = `/proc/${pid}/cmdline`
    try {
      if (readFileSync(path, "utf8").includes(`${folder}/`)) process.kill(Number(pid), "SIGKILL")
    } catch {
      // it has ended meanwhile
    }
  }
}

/** Starts an engine with its own data root and socket; it ends with the scope. */
const openEngine = Effect.fnUntraced(function* (
  more: ReadonlyArray<string>,
  command: readonly [string, ...ReadonlyArray<string>] = [dockerd ?? "dockerd"]
) {
  const [program, ...before] = command
  const folder = yield* temporaryFolderIn("/tmp") // socket paths have a maximum length
  const socket = join(folder, "docker.sock")
  const log = openSync(join(folder, "log"), "a")
  const args = [
    before,
    ["--data-root", join(folder, "data")],
    ["--exec-root", join(folder, "exec")],
    ["--pidfile", join(folder, "pid")],
    ["--host", `unix://${socket}`],
    more
  ].flat()
  const docker = new Docker({ socketPath: socket })
  let child: ChildProcess | undefined

  const start = Effect.gen(function* () {
    // Their processes are dead, but look alive as zombies if the init process does not reap them.
    for (const name of ["pid", "exec/containerd/containerd.pid"]) rmSync(join(folder, name), { force: true })
    const spawned = spawn(program, args, { stdio: ["ignore", log, log] })
    child = spawned
    yield* Effect.tryPromise(() => docker.ping()).pipe(
      Effect.retry({ schedule: Schedule.spaced(100), while: () => spawned.exitCode === null }),
      Effect.timeout("60 seconds"),
      Effect.catch(() =>
        Effect.die(
          new Error(`dockerd does not start:\n${readFileSync(join(folder, "log"), "utf8").slice(-2000)}`)
        )
      )
    )
  })
  const kill = (signal: NodeJS.Signals) =>
    Effect.callback<void>((resume) => {
      if (child === undefined || child.exitCode !== null || child.signalCode !== null) {
        return resume(Effect.void)
      }
      child.once("exit", () => resume(Effect.void))
      child.kill(signal)
    })
  /** Containers and bridges can outlive their engine, but must not outlive the test. */
  const end = Effect.gen(function* () {
    if (child?.exitCode !== null || child.signalCode !== null) yield* start
    const left = yield* Effect.tryPromise(() => docker.listContainers({ all: true }))
    for (const { Id } of left) {
      yield* Effect.tryPromise(() => docker.getContainer(Id).remove({ force: true }))
    }
    yield* Effect.tryPromise(() => docker.pruneNetworks())
  }).pipe(
    Effect.ignoreCause,
    Effect.andThen(kill("SIGTERM")),
    Effect.timeoutOption("60 seconds"),
    Effect.andThen(kill("SIGKILL")),
    Effect.andThen(Effect.sync(() => endProcessesOf(folder)))
  )
  yield* Effect.acquireRelease(start, () => end)
  return { socket, docker, kill, start } satisfies OwnEngine
})

/**
 * The engine of a test run. It uses the bridge of the machine, so only one can run. It needs more than the 31 default
 * subnets, because every node of every test has its own networks.
 */
const ownEngine = Effect.andThen(lock, openEngine(["--default-address-pool", "base=10.213.0.0/16,size=26"]))

/** The reason why no engine can be started; undefined if one can. */
export const missingOwnEngine: string | undefined =
  dockerd === undefined
    ? "dockerd is not installed (apt-get install docker.io)"
    : process.getuid?.() !== 0
      ? "dockerd can only be started by root"
      : undefined

/** An engine without networks, isolated from all others, with {@link TEST_IMAGE}. */
export const isolatedEngine = Effect.fnUntraced(function* (...more: ReadonlyArray<string>) {
  // An engine without a bridge removes the bridge of the machine unless it is hidden.
  const engine = yield* openEngine(
    ["--bridge=none", "--iptables=false", "--ip6tables=false", ...more],
    ["unshare", "-n", dockerd ?? "dockerd"]
  )
  yield* importImage(engine.docker)
  return engine
})

/** The shared libraries of a program, its loader included. */
const librariesOf = (program: string) =>
  [...execFileSync("ldd", [program], { encoding: "utf8" }).matchAll(/(\/\S+)(?= \(0x)/g)].map(
    ([path]) => path
  )

/** Imports an image with busybox and perl (for UDP), built from programs of this machine without a registry. */
const importImage = Effect.fnUntraced(
  function* (docker: Docker) {
    const folder = yield* temporaryFolder
    const root = join(folder, "root")
    for (const name of ["bin", "tmp", "proc", "sys", "dev", "etc", "home"])
      mkdirSync(join(root, name), { recursive: true })
    const program = busybox ?? ""
    copyFileSync(program, join(root, "bin", "busybox"))
    chmodSync(join(root, "bin", "busybox"), 0o755)
    for (const applet of execFileSync(program, ["--list"], { encoding: "utf8" }).trim().split("\n")) {
      if (applet !== "busybox") symlinkSync("busybox", join(root, "bin", applet))
    }
    const others = perl === undefined ? [] : [perl, ...librariesOf(perl)]
    for (const path of others) {
      mkdirSync(join(root, dirname(path)), { recursive: true })
      copyFileSync(path, join(root, path))
    }
    const tar = join(folder, "root.tar")
    execFileSync("tar", ["-C", root, "-cf", tar, "."])
    const [repo, tag] = TEST_IMAGE.split(":")
    const stream = yield* Effect.tryPromise(() => docker.importImage(tar, { repo, tag }))
    yield* Effect.callback<void>((resume) => {
      stream.on("data", () => undefined)
      stream.on("end", () => resume(Effect.void))
    })
  },
  Effect.scoped,
  Effect.orDie
)

/** The socket of the engine of a test run, with {@link TEST_IMAGE}. */
export const engineOfRun = Effect.gen(function* () {
  if (missingEngine !== undefined) {
    return yield* Effect.die(new Error(`these tests need a Docker engine: ${missingEngine}`))
  }
  const socket = running ?? (yield* ownEngine).socket
  yield* importImage(new Docker({ socketPath: socket }))
  return socket
})

/** The engine of the tests, with {@link TEST_IMAGE}. Files share it: a test touches only what has its own labels. */
export class TestEngine extends Context.Service<
  TestEngine,
  { readonly socket: string; readonly docker: Docker }
>()("test/TestEngine") {
  static readonly layer = Layer.effect(
    TestEngine,
    Effect.map(Effect.orDie(sharedOfRun("docker")), (socket) =>
      TestEngine.of({ socket, docker: new Docker({ socketPath: socket }) })
    )
  )
}
