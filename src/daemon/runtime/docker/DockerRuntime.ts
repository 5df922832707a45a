/**
 * Servers in containers of a Docker engine. Read first: this file, `containerOptions.ts` (confinement),
 * `containerConsole.ts` (output).
 */
import { randomUUID } from "node:crypto"
import { realpath } from "node:fs/promises"
import { Clock, Effect, Exit, Fiber, Layer, Option, Schedule, Scope } from "effect"
import { appendConsoleLine } from "../../console/consoleFiles.ts"
import { io } from "../../disk/fsio.ts"
import { chownTree, chownVolume } from "../../files/owners.ts"
import { killedExit, type ProcessExit } from "../exitReason.ts"
import { type Adopted, type Job, type Launch, LaunchFailed, noUsers, Runtime } from "../Runtime.ts"
import { beginContainerConsole } from "./containerConsole.ts"
import { attachContainer, runningJob } from "./containerJob.ts"
import {
  type ContainerPlan,
  type ContainerRules,
  checkPorts,
  insidePath,
  jobLimits,
  portOptions,
  unsafeReason
} from "./containerOptions.ts"
import { makeContainerRemoval, readContainerRecord, writeContainerRecord } from "./containerRemoval.ts"
import { openContainerRun, openPendingRun, openRunConsole, type RunAt, settle } from "./containerRun.ts"
import {
  createContainer,
  endedWithHost,
  exitOf,
  listOwn,
  removeOwn,
  setTerminal,
  startContainer,
  stateOf
} from "./containers.ts"
import { Engine, type EngineError, makeOfferedRuntimes } from "./Engine.ts"
import { ensureImage, launchFailed, needsPull, type PullPolicy, type PullRules } from "./images.ts"
import { makeNodeNetworks, makeOutgoing, outgoingAddress, type Purpose } from "./networks.ts"

export interface DockerRuntimeOptions {
  readonly node: string
  /** The path of the engine's socket. Default `/var/run/docker.sock`. */
  readonly socket?: string
  /** Whether the engine may be absent at the start without a warning. Default false. */
  readonly optional?: boolean
  readonly pull?: PullPolicy
  /** The config file of Docker's command line with the credentials of registries. Default: none. */
  readonly config?: string
  /** The user in containers and of their files. Default 988:988, or the service's user if it is not root. */
  readonly user?: { readonly uid: number; readonly gid: number }
  /** The limit of processes and threads in a container. Default 4096. */
  readonly pidsLimit?: number
  /** The size of `/tmp`, in MiB. Default 128. */
  readonly tmpMib?: number
  /** The network of containers. Default: two networks of the node, one for servers and one for install jobs. */
  readonly network?: string
  readonly env?: Readonly<Record<string, string>>
}

/** The longest time for which `start` waits for its container, in ms; then the start continues in the background. */
const DIRECT_START = 5000
const SHUTDOWN_TIDY = 3000
/** The pause between attempts to adopt a run while the engine is down, in ms. */
const ADOPTION_PAUSE = 1000

const defaultUser = () => {
  const uid = process.getuid?.() ?? 0
  return uid === 0 ? { uid: 988, gid: 988 } : { uid, gid: process.getgid?.() ?? uid }
}

const noImage = Effect.fail(
  new LaunchFailed({ message: "the software has no image for this version", code: "REFUSED" })
)

const make = Effect.fnUntraced(function* (options: DockerRuntimeOptions) {
  const engine = yield* Engine
  const scope = yield* Effect.scope
  const withEngine = Effect.provideService(Engine, engine)
  const optional = options.optional ?? false
  const pull: PullRules = { policy: options.pull ?? "if-not-present", config: options.config }
  const rules: ContainerRules = {
    node: options.node,
    user: options.user ?? defaultUser(),
    pidsLimit: options.pidsLimit ?? 4096,
    tmpMib: options.tmpMib ?? 128,
    env: options.env ?? {}
  }
  const { node, user } = rules
  const outgoing = yield* makeOutgoing(node)
  const networks = yield* makeNodeNetworks(node)
  const networkOf = (purpose: Purpose) =>
    options.network === undefined ? networks.of(purpose) : Effect.succeed(options.network)
  const removal = yield* makeContainerRemoval({ node, optional, tidy: outgoing.tidy })
  const { sweep } = removal
  const loggedLimits = new Set<string>()

  const engineIsUp = engine.ping.pipe(Effect.mapError(launchFailed))

  /** Appends a line to a server's console. Progress comes from a stream of the client, outside any fiber. */
  const writeLine = (folder: string) => (line: string) =>
    Effect.runSync(Effect.ignore(appendConsoleLine(folder, line)))

  const begin = Effect.fnUntraced(function* (launch: Launch) {
    const { allocations, folder, image, server_id: name, token } = launch
    yield* removeOwn(node, name)
    yield* ensureImage(image, pull, { onLine: writeLine(folder), mustBeFresh: false })
    const mounted = (launch.shared ?? []).flatMap(({ target }) => (target === undefined ? [] : [target]))
    yield* chownTree(launch.cwd, user, new Set(mounted))
    for (const shared of launch.shared ?? []) {
      if (shared.volume && !shared.read_only) yield* chownVolume(shared.path, user)
    }
    yield* writeContainerRecord(folder, { token })
    yield* beginContainerConsole(folder)
    const outgoingIp = outgoingAddress(allocations)
    return yield* outgoing.on(outgoingIp, networkOf("servers"), (network) =>
      Effect.gen(function* () {
        const plan = {
          ...launch,
          name,
          run: token,
          home: launch.cwd,
          keepOutput: true,
          network,
          outgoing: outgoingIp
        }
        const made = yield* createContainer(plan, rules, loggedLimits)
        yield* writeContainerRecord(folder, { token, container: made })
        const { terminal = false } = launch
        const opened = yield* openRunConsole({ id: made, terminal, isNew: true }, folder, scope)
        const run = Effect.gen(function* () {
          yield* startContainer(made)
          if (terminal) yield* setTerminal(made)
          yield* checkPorts(made, portOptions(allocations).PortBindings, network)
          return yield* openContainerRun(launch, made, removal.add, opened)
        })
        return yield* Effect.onError(run, () => Scope.close(opened.scope, Exit.void))
      }).pipe(Effect.onError(() => sweep(name)))
    )
  })

  const start = Effect.fnUntraced(function* (launch: Launch) {
    const { folder, server_id: name } = launch
    yield* engineIsUp
    const socket = yield* io("read the engine's socket", () => realpath(engine.socket))
    const unsafe = unsafeReason(launch, [engine.socket, socket])
    if (unsafe !== undefined) return yield* new LaunchFailed({ message: unsafe, code: "REFUSED" })
    const needsImage = yield* needsPull(launch.image, pull.policy)
    const making = yield* begin(launch).pipe(Effect.mapError(launchFailed), withEngine, Effect.forkIn(scope))
    if (!needsImage) {
      const made = yield* Effect.timeoutOption(Fiber.join(making), DIRECT_START)
      if (Option.isSome(made)) return made.value
    }
    const onFailed = ({ message, next }: LaunchFailed) => {
      const why = `${message} (node ${node})${next === undefined ? "" : `: ${next}, then start it again`}`
      return Effect.logWarning(`the server cannot be started: ${why}`).pipe(
        Effect.andThen(Effect.sync(() => writeLine(folder)(`cannot be started: ${why}`)))
      )
    }
    return yield* openPendingRun({ making, onFailed, abandon: withEngine(sweep(name)) }, scope)
  })

  /** Finds the container of a run; waits while the engine is down, because the server may still run. */
  const find = Effect.fnUntraced(function* (at: RunAt) {
    let warned = false
    while (true) {
      const found = yield* Effect.result(listOwn(node, at.server_id))
      if (found._tag === "Success") return found.success.find((container) => container.run === at.token)
      if (!warned) yield* Effect.logWarning(`the server cannot be adopted yet: ${found.failure.message}`)
      warned = true
      yield* Effect.sleep(ADOPTION_PAUSE)
    }
  })

  const adopt = Effect.fnUntraced(function* (at: RunAt): Effect.fn.Return<Adopted, EngineError, Engine> {
    const known = yield* readContainerRecord(at.folder, at.token)
    const neverBegan = Effect.as(sweep(at.server_id), { _tag: "NeverBegan" } as const)
    if (known?.container === undefined) return yield* neverBegan
    const ended = (exit: ProcessExit) => Effect.as(sweep(at.server_id), { _tag: "Ended", exit } as const)
    if (known.exit !== undefined) return yield* ended(known.exit)
    const container = yield* find(at)
    const state = container === undefined ? undefined : yield* stateOf(container.id)
    if (container === undefined || state === undefined)
      return yield* ended({ ...killedExit, with_host: true })
    if (state.Status === "created") return yield* neverBegan
    const of = { id: container.id, terminal: state.terminal }
    if (state.Running) {
      const opened = yield* openRunConsole(of, at.folder, scope)
      return { _tag: "Running", run: yield* openContainerRun(at, of.id, removal.add, opened) }
    }
    const withHost = endedWithHost(state, yield* Clock.currentTimeMillis)
    const exit: ProcessExit = {
      ...(yield* exitOf(container.id, state, false)),
      ...(withHost ? { with_host: true } : {})
    }
    yield* settle(at, of, exit)
    return yield* ended(exit)
  })

  const job = Effect.fnUntraced(function* (job: Job) {
    const { argv, choice, cwd, env, hasInput, limits, name, onOutput, scratch, terminal = false } = job
    yield* engineIsUp
    for (const folder of [cwd, scratch]) if (folder !== undefined) yield* chownTree(folder, user)
    const inside = (word: string) => insidePath(word, cwd, scratch)
    const plan: ContainerPlan = {
      name,
      run: randomUUID(),
      image: choice?.image ?? "",
      argv: argv.map(inside),
      env: Object.fromEntries(Object.entries(env).map(([key, value]) => [key, inside(value)])),
      limits: jobLimits(limits),
      home: cwd,
      scratch,
      terminal,
      hasInput,
      network: yield* networkOf("jobs"),
      keepOutput: false
    }
    const id = yield* Effect.acquireRelease(createContainer(plan, rules, loggedLimits), () => sweep(name))
    const attached = yield* attachContainer(id, terminal, onOutput)
    yield* startContainer(id)
    if (terminal) yield* setTerminal(id)
    return yield* runningJob(id, attached)
  })

  const alive = Effect.andThen(engine.ping, listOwn(node)).pipe(
    Effect.map((found) => new Set(found.map((container) => container.name))),
    Effect.catch((error) =>
      (optional && !engine.hasAnswered() ? Effect.logDebug : Effect.logWarning)(error.message).pipe(
        Effect.as(new Set<string>())
      )
    )
  )

  const kinds = makeOfferedRuntimes(engine, optional)

  yield* Effect.addFinalizer(() =>
    outgoing.tidy.pipe(
      Effect.andThen(networks.removeUnused),
      Effect.timeoutOption(SHUTDOWN_TIDY),
      Effect.catch((error) => Effect.logDebug(error.message))
    )
  )

  return Runtime.of({
    notEnforced: Effect.succeed([]),
    lacksUids: Effect.succeed(false),
    kinds,
    kindFor: ({ image }) => (image === "" ? noImage : Effect.as(engineIsUp, "docker")),
    userFor: () => Effect.succeed(user),
    users: noUsers,
    isolation: Effect.map(kinds, (offered) => (offered.length === 0 ? {} : { docker: "container" as const })),
    prepare: ({ image }, onOutput, watch) => {
      const onLine = (line: string) => onOutput(Buffer.from(`${line}\n`))
      return ensureImage(image, pull, { onLine, watch, mustBeFresh: true }).pipe(withEngine)
    },
    ensureImage: ({ image }, watch) => {
      const policy = pull.policy === "always" ? "if-not-present" : pull.policy
      return ensureImage(
        image,
        { ...pull, policy },
        { onLine: () => undefined, watch, mustBeFresh: true }
      ).pipe(withEngine)
    },
    start: (launch) => start(launch).pipe(Effect.mapError(launchFailed), withEngine),
    adopt: (at) =>
      adopt(at).pipe(
        Effect.retry(Schedule.spaced(ADOPTION_PAUSE)), // the engine went down in between
        Effect.orDie, // retried until it succeeds
        withEngine
      ),
    sweep: (name) => withEngine(sweep(name)),
    alive: withEngine(alive),
    job: (what) => job(what).pipe(Effect.mapError(launchFailed), withEngine)
  })
})

/** Servers as containers of a Docker engine; they outlive this service and are adopted. */
export const DockerRuntime = {
  layer: (options: DockerRuntimeOptions): Layer.Layer<Runtime> =>
    Layer.effect(Runtime, make(options)).pipe(
      Layer.provide(Engine.layer({ socket: options.socket ?? "/var/run/docker.sock" }))
    )
}
