/**
 * Servers in containers of a Docker engine. Read first: this file, `containerOptions.ts` (confinement),
 * `containerConsole.ts` (output).
 */
import { randomUUID } from "node:crypto"
import { realpath } from "node:fs/promises"
import { Clock, Effect, Exit, Fiber, Layer, Option, Schedule, Scope } from "effect"
import { appendConsoleLine } from "../../console/consoleFiles.ts"
import { type IoError, io } from "../../disk/fsio.ts"
import { chownTree, chownVolume } from "../../files/owners.ts"
import { killedExit, type ProcessExit } from "../exitReason.ts"
import { type Adopted, type Job, type Launch, LaunchFailed, noUsers, Runtime } from "../Runtime.ts"
import { beginContainerConsole } from "./containerConsole.ts"
import { attachContainer, runningJob } from "./containerJob.ts"
import {
  type ContainerPlan,
  type ContainerRules,
  insidePath,
  jobLimits,
  portOptions,
  unsafeReason
} from "./containerOptions.ts"
import { makeContainerRemoval, readContainerRecord, writeContainerRecord } from "./containerRemoval.ts"
import { openContainerRun, openPendingRun, openRunConsole, type RunAt, settle } from "./containerRun.ts"
import {
  checkPorts,
  createContainer,
  endedWithHost,
  exitOf,
  listOwn,
  removeOwn,
  setTerminal,
  startContainer,
  stateOf
} from "./containers.ts"
import { Engine, type EngineError, makeIsOffered } from "./Engine.ts"
import { ensureImage, launchFailed, needsPull, type PullPolicy, type PullRules } from "./images.ts"
import { makeNetworks, outgoingAddress } from "./networks.ts"

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
  /** The network of containers. Default: two networks of the node, one for servers and one for install jobs. */
  readonly network?: string
  readonly env?: () => Readonly<Record<string, string>>
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

const openParts = Effect.fnUntraced(function* (options: DockerRuntimeOptions) {
  const engine = yield* Engine
  const { node, optional = false } = options
  const networks = yield* makeNetworks(node, options.network)
  const removal = yield* makeContainerRemoval({ node, optional, tidy: networks.tidy(false) })
  yield* Effect.addFinalizer(() =>
    Effect.suspend(() => (engine.hasAnswered() ? networks.tidy(true) : Effect.void)).pipe(
      Effect.timeoutOption(SHUTDOWN_TIDY),
      Effect.catch((error) => Effect.logDebug(error.message))
    )
  )
  const pull: PullRules = { policy: options.pull ?? "if-not-present", config: options.config }
  const rules: ContainerRules = {
    node,
    user: options.user ?? defaultUser(),
    get env() {
      return options.env?.() ?? {}
    }
  }
  return {
    engine,
    optional,
    networks,
    removal,
    pull,
    rules,
    scope: yield* Effect.scope,
    logged: new Set<string>()
  }
})

type Parts = Effect.Success<ReturnType<typeof openParts>>

/** Appends a line to a server's console. Progress comes from a stream of the client, outside any fiber. */
const writeLine = (folder: string) => (line: string) =>
  Effect.runSync(Effect.ignore(appendConsoleLine(folder, line)))

/** Creates and starts the container of a server. */
const begin = Effect.fnUntraced(function* (parts: Parts, launch: Launch) {
  const { logged, networks, pull, removal, rules, scope } = parts
  const { allocations, folder, image, server_id: name, terminal = false, token } = launch
  yield* removeOwn(rules.node, name)
  yield* ensureImage(image, pull, { onLine: writeLine(folder), mustBeFresh: false })
  const mounted = (launch.shared ?? []).flatMap(({ target }) => (target === undefined ? [] : [target]))
  yield* chownTree(launch.cwd, rules.user, new Set(mounted))
  for (const shared of launch.shared ?? []) {
    if (shared.volume && !shared.read_only) yield* chownVolume(shared.path, rules.user)
  }
  yield* writeContainerRecord(folder, { token })
  yield* beginContainerConsole(folder)
  const outgoing = outgoingAddress(allocations)
  const startOn = Effect.fnUntraced(
    function* (network: string) {
      const plan = { ...launch, name, run: token, home: launch.cwd, keepOutput: true, network, outgoing }
      const made = yield* createContainer(plan, rules, logged)
      yield* writeContainerRecord(folder, { token, container: made })
      const opened = yield* openRunConsole({ id: made, terminal, isNew: true }, folder, scope)
      const run = Effect.gen(function* () {
        yield* startContainer(made)
        if (terminal) yield* setTerminal(made)
        yield* checkPorts(made, portOptions(allocations).PortBindings, network)
        return yield* openContainerRun(launch, made, removal.add, opened)
      })
      return yield* Effect.onError(run, () => Scope.close(opened.scope, Exit.void))
    },
    Effect.onError(() => removal.sweep(name))
  )
  return yield* networks.on(outgoing, startOn)
})

const start = Effect.fnUntraced(function* (parts: Parts, launch: Launch) {
  const { engine, pull, removal, rules, scope } = parts
  const { folder, server_id: name } = launch
  yield* engine.ping
  const socket = yield* io("read the engine's socket", () => realpath(engine.socket))
  const unsafe = unsafeReason(launch, [engine.socket, socket])
  if (unsafe !== undefined) return yield* new LaunchFailed({ message: unsafe, code: "REFUSED" })
  const needsImage = yield* needsPull(launch.image, pull.policy)
  const making = yield* begin(parts, launch).pipe(Effect.mapError(launchFailed), Effect.forkIn(scope))
  if (!needsImage) {
    const made = yield* Effect.timeoutOption(Fiber.join(making), DIRECT_START)
    if (Option.isSome(made)) return made.value
  }
  const onFailed = ({ message, next }: LaunchFailed) => {
    const why = `${message} (node ${rules.node})${next === undefined ? "" : `: ${next}, then start it again`}`
    return Effect.logWarning(`the server cannot be started: ${why}`).pipe(
      Effect.andThen(Effect.sync(() => writeLine(folder)(`cannot be started: ${why}`)))
    )
  }
  return yield* openPendingRun({ making, onFailed, abandon: removal.sweep(name) }, scope)
})

const adoptOnce = Effect.fnUntraced(function* (
  { removal, rules, scope }: Parts,
  at: RunAt
): Effect.fn.Return<Adopted, EngineError | IoError, Engine> {
  const known = yield* readContainerRecord(at.folder, at.token)
  const neverBegan = Effect.as(removal.sweep(at.server_id), { _tag: "NeverBegan" } as const)
  if (known?.container === undefined) return yield* neverBegan
  const ended = (exit: ProcessExit) =>
    Effect.as(removal.sweep(at.server_id), { _tag: "Ended", exit } as const)
  if (known.exit !== undefined) return yield* ended(known.exit)
  const container = (yield* listOwn(rules.node, at.server_id)).find(({ run }) => run === at.token)
  const state = container === undefined ? undefined : yield* stateOf(container.id)
  if (container === undefined || state === undefined) return yield* ended({ ...killedExit, with_host: true })
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

/** Adopts a run; waits while the engine is down, because the server may still run. */
const adopt = (parts: Parts, at: RunAt) => {
  let warned = false
  return adoptOnce(parts, at).pipe(
    Effect.tapError(({ message }) => {
      const log = warned ? Effect.logDebug : Effect.logWarning
      warned = true
      return log(`the server cannot be adopted yet: ${message}`)
    }),
    Effect.retry(Schedule.spaced(ADOPTION_PAUSE)),
    Effect.orDie // retried until it succeeds
  )
}

const startJob = Effect.fnUntraced(function* ({ engine, logged, networks, removal, rules }: Parts, job: Job) {
  const { argv, choice, cwd, env, hasInput, limits, name, onOutput, scratch, terminal = false } = job
  yield* engine.ping
  for (const folder of [cwd, scratch]) if (folder !== undefined) yield* chownTree(folder, rules.user)
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
    network: yield* networks.of("jobs"),
    keepOutput: false
  }
  const id = yield* Effect.acquireRelease(createContainer(plan, rules, logged), () => removal.sweep(name))
  const attached = yield* attachContainer(id, terminal, onOutput)
  yield* startContainer(id)
  if (terminal) yield* setTerminal(id)
  return yield* runningJob(id, attached)
})

const make = Effect.fnUntraced(function* (options: DockerRuntimeOptions) {
  const parts = yield* openParts(options)
  const { engine, optional, pull, removal, rules } = parts
  const withEngine = Effect.provideService(Engine, engine)
  return Runtime.of({
    offer: Effect.map(makeIsOffered(engine, optional), (isOffered) => ({
      kinds: isOffered ? ["docker"] : [],
      isolation: isOffered ? { docker: "container" } : {},
      notEnforced: [],
      lacksUids: false
    })),
    kindFor: ({ image }) =>
      image === "" ? noImage : engine.ping.pipe(Effect.mapError(launchFailed), Effect.as("docker")),
    userFor: () => Effect.succeed(rules.user),
    users: noUsers,
    ensureImage: ({ image }, onOutput, watch) => {
      const keeps = onOutput === undefined && pull.policy === "always"
      const onLine = (line: string) => onOutput?.(Buffer.from(`${line}\n`))
      return ensureImage(
        image,
        { ...pull, ...(keeps ? { policy: "if-not-present" } : {}) },
        { onLine, watch, mustBeFresh: true }
      ).pipe(withEngine)
    },
    start: (launch) => start(parts, launch).pipe(Effect.mapError(launchFailed), withEngine),
    adopt: (at) => withEngine(adopt(parts, at)),
    sweep: removal.sweep,
    alive: Effect.andThen(engine.ping, listOwn(rules.node)).pipe(
      Effect.map((found) => new Set(found.map(({ name }) => name))),
      Effect.catch(({ message }) => {
        const log = optional && !engine.hasAnswered() ? Effect.logDebug : Effect.logWarning
        return Effect.as(log(message), new Set<string>())
      }),
      withEngine
    ),
    job: (job) => startJob(parts, job).pipe(Effect.mapError(launchFailed), withEngine)
  })
})

/** Servers as containers of a Docker engine; they outlive this service and are adopted. */
export const DockerRuntime = {
  layer: (options: DockerRuntimeOptions): Layer.Layer<Runtime> =>
    Layer.effect(Runtime, make(options)).pipe(
      Layer.provide(Engine.layer({ socket: options.socket ?? "/var/run/docker.sock" }))
    )
}
