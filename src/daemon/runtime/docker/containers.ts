/** The containers of this node. Every call selects them by their labels and never touches others. */
import { uptime } from "node:os"
import { Clock, Effect, Schedule, Schema } from "effect"
import { KILLED, killedExit } from "../exitReason.ts"
import { TERMINAL_SIZE } from "../processConsole.ts"
import { LaunchFailed, noProgram, type Usage } from "../Runtime.ts"
import {
  type ContainerPlan,
  type ContainerRules,
  containerName,
  containerOptions,
  droppedLimits,
  LABEL,
  type PortBindings,
  unpublished
} from "./containerOptions.ts"
import { Engine, EngineError, inspect, onContainer, orDone, orNotFound, readStream } from "./Engine.ts"

export interface OwnContainer {
  readonly id: string
  readonly name: string
  readonly run: string
  /** The address from which its traffic leaves, if it matters. */
  readonly outgoing?: string | undefined
}

export const listOwn = Effect.fnUntraced(function* (node: string, name?: string) {
  const engine = yield* Engine
  const label = [`${LABEL.node}=${node}`, ...(name === undefined ? [] : [`${LABEL.server}=${name}`])]
  const found = yield* engine.call("list containers", (docker, abortSignal) =>
    docker.listContainers({ all: true, filters: { label }, abortSignal })
  )
  return found.flatMap(({ Id: id, Labels: labels, Names: names }): ReadonlyArray<OwnContainer> => {
    const { [LABEL.outgoing]: outgoing, [LABEL.run]: run = "", [LABEL.server]: own } = labels
    // Checked again: an engine that does not support the filter returns all containers.
    if (labels[LABEL.node] !== node || own === undefined) return []
    if (!names.includes(`/${containerName(own, run)}`)) return []
    return name === undefined || own === name ? [{ id, name: own, run, outgoing }] : []
  })
})

/** Creates a container. `logged`: limits that the host cannot enforce and that were logged. */
export const createContainer = Effect.fnUntraced(function* (
  plan: ContainerPlan,
  rules: ContainerRules,
  logged: Set<string>
) {
  const engine = yield* Engine
  const { name, ...body } = containerOptions(plan, rules)
  // Split, because the client would else repeat the body, with its environment, in the URL.
  const options = { _query: { name }, _body: body }
  const { id } = yield* engine.call("create the container", (docker, abortSignal) =>
    docker.createContainer({ ...options, abortSignal })
  )
  const made = yield* inspect(id)
  const dropped = droppedLimits(body.HostConfig ?? {}, made.HostConfig).filter((limit) => !logged.has(limit))
  for (const limit of dropped) logged.add(limit)
  if (dropped.length > 0)
    yield* Effect.logWarning(`the engine does not enforce on this host: ${dropped.join(", ")}`)
  return id
})

export const startContainer = (id: string) =>
  onContainer(id, "start the container", (container, options) => container.start(options))

const { columns, rows } = TERMINAL_SIZE
const SET_TERMINAL = ["stty", "-F", "/dev/console", "-echo", "rows", `${rows}`, "cols", `${columns}`]
/** The timeout of that program, in ms. */
const STTY_TIMEOUT = 5000

/** Sets a terminal's size and disables its echo by `stty` of the image: the engine has no such setting. */
export const setTerminal = Effect.fnUntraced(
  function* (id: string) {
    const engine = yield* Engine
    const what = "set the terminal"
    const exec = yield* onContainer(id, what, (container, options) =>
      container.exec({ Cmd: SET_TERMINAL, AttachStdout: true, AttachStderr: true, ...options })
    )
    const output = yield* engine.call(what, (_, abortSignal) => exec.start({ abortSignal }))
    yield* Effect.timeoutOption(
      readStream(output, () => undefined),
      STTY_TIMEOUT
    )
    const { ExitCode } = yield* engine.call(what, (_, abortSignal) => exec.inspect({ abortSignal }))
    if (ExitCode !== 0) return yield* new EngineError({ status: undefined, message: `exit code ${ExitCode}` })
  },
  (run) =>
    Effect.catch(run, ({ message, status }) =>
      // 409: the container has ended.
      status === 409
        ? Effect.void
        : Effect.logWarning(
            `the console shows the input of a server, because the program stty of its image fails: ${message}`
          )
    )
)

/** The PATH of containers whose image has none. */
const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
/** The last output of a container whose init process does not find the program. */
const initFailed = /\[FATAL tini \(\d+\)\] exec (.+) failed: No such file or directory/

/** Returns the error of an ended container whose program does not exist in its image. */
export const missingProgram = Effect.fnUntraced(function* (id: string) {
  const output = yield* onContainer(id, "read the console", (container, options) =>
    container.logs({ stdout: true, stderr: true, tail: 1, follow: false, ...options })
  )
  const [, program] = initFailed.exec(output.toString("latin1")) ?? []
  if (program === undefined) return undefined
  const { Config } = yield* inspect(id)
  const path = Config.Env.find((variable) => variable.startsWith("PATH="))
  return noProgram(program, path?.slice("PATH=".length) ?? DEFAULT_PATH)
})

export const removeContainer = (id: string) =>
  orDone(
    onContainer(id, "remove the container", (container, options) =>
      container.remove({ force: true, v: true, ...options })
    )
  )

export const removeOwn = Effect.fnUntraced(function* (node: string, name: string) {
  const found = yield* listOwn(node, name)
  yield* Effect.forEach(found, (container) => removeContainer(container.id), {
    concurrency: 4,
    discard: true
  })
})

const Inspected = Schema.Struct({
  State: Schema.Struct({
    Status: Schema.String,
    Running: Schema.Boolean,
    ExitCode: Schema.Int,
    OOMKilled: Schema.Boolean,
    StartedAt: Schema.String,
    Pid: Schema.optionalKey(Schema.Int),
    FinishedAt: Schema.optionalKey(Schema.String)
  }),
  Config: Schema.Struct({ Tty: Schema.Boolean }),
  NetworkSettings: Schema.Struct({
    Ports: Schema.optionalKey(
      Schema.NullOr(
        Schema.Record(Schema.String, Schema.NullOr(Schema.Array(Schema.Struct({ HostPort: Schema.String }))))
      )
    )
  })
})
const decodeInspected = Schema.decodeUnknownEffect(Inspected)

/** Returns the state of a container, if it exists. */
export const stateOf = Effect.fnUntraced(function* (id: string) {
  const found = yield* inspect(id).pipe(orNotFound(undefined))
  if (found === undefined) return undefined
  const { Config, NetworkSettings, State } = yield* Effect.mapError(
    decodeInspected(found),
    () =>
      new EngineError({
        status: 500,
        message: "the Docker engine returned an invalid state of the container"
      })
  )
  return { ...State, terminal: Config.Tty, ports: NetworkSettings.Ports ?? {} }
})

type ContainerState = NonNullable<Effect.Success<ReturnType<typeof stateOf>>>

/** Fails if a container runs and its ports are not published. A container that has just ended has no ports. */
export const checkPorts = Effect.fnUntraced(function* (id: string, asked: PortBindings, network: string) {
  // With the host network, a container uses the ports of the host.
  if (network === "host" || Object.keys(asked).length === 0) return
  const missing = Effect.map(stateOf(id), (state) =>
    state?.Running === true ? unpublished(asked, state.ports) : []
  )
  const [port] = yield* Effect.repeat(missing, {
    while: (ports) => ports.length > 0,
    schedule: Schedule.max([Schedule.spaced(100), Schedule.recurs(2)])
  })
  if (port === undefined) return
  return yield* new LaunchFailed({
    message: `the engine has not published port ${port}: the server is not reachable`,
    next: `enable the network ${network} of the engine (it may run with --bridge=none)`
  })
})

/** The time for an out-of-memory event, in ms: it can come after the end. */
const OOM_EVENT_DELAY = 700

const hasOomEvent = Effect.fnUntraced(function* (id: string) {
  const engine = yield* Engine
  const until = (yield* Clock.currentTimeMillis) + OOM_EVENT_DELAY
  const stream = yield* engine.call("read the engine's events", (docker, abortSignal) =>
    docker.getEvents({
      since: 1,
      until: until / 1000,
      filters: { container: [id], event: ["oom"] },
      abortSignal
    })
  )
  let isSeen = false
  const read = readStream(stream, () => {
    isSeen = true
  })
  yield* Effect.timeoutOption(read, 2 * OOM_EVENT_DELAY)
  return isSeen
})

/** Returns the exit of an ended container. `wasKilled`: this service killed it. */
export const exitOf = Effect.fnUntraced(function* (id: string, state: ContainerState, wasKilled: boolean) {
  const { ExitCode: code, OOMKilled } = state
  // Another process in the container may have run out of memory earlier: only an end by SIGKILL counts.
  if (code !== KILLED || wasKilled) return { code, out_of_memory: false }
  const out_of_memory = OOMKilled || (yield* Effect.orElseSucceed(hasOomEvent(id), () => false))
  return { code, out_of_memory }
})

/** The exit code that the engine gives a container whose end it has not seen. */
const UNSEEN = 255

/** Whether a container ended before the present boot of its host, or at an end of its engine that was no shutdown. */
export const endedWithHost = ({ ExitCode, FinishedAt = "" }: ContainerState, now: number): boolean =>
  ExitCode === UNSEEN || Date.parse(FinishedAt) < now - uptime() * 1000

/** Waits for the end of a started container, also while the engine is down. `wasKilled`: see {@link exitOf}. */
export const waitForExit = Effect.fnUntraced(function* (id: string, wasKilled: () => boolean) {
  const engine = yield* Engine
  let engineEnded = false
  const inspect = Effect.andThen(engine.ended(id), stateOf(id)).pipe(
    Effect.catch((error) => {
      engineEnded ||= error.status === undefined
      return Effect.as(Effect.logDebug(error.message), "unknown" as const)
    }),
    Effect.tap((found) =>
      Effect.sync(() => {
        if (found !== undefined && found !== "unknown" && found.Running) engineEnded = false
      })
    )
  )
  const state = yield* Effect.repeat(inspect, {
    while: (found) => found === "unknown" || found?.Running === true,
    schedule: Schedule.spaced(500)
  })
  const exit = state === undefined || state === "unknown" ? killedExit : yield* exitOf(id, state, wasKilled())
  return engineEnded ? { ...exit, with_host: true as const } : exit
})

const Counter = Schema.optionalKey(Schema.Finite)
const Stats = Schema.Struct({
  read: Schema.String,
  memory_stats: Schema.Struct({
    usage: Counter,
    stats: Schema.optionalKey(Schema.Struct({ total_inactive_file: Counter, inactive_file: Counter }))
  }),
  cpu_stats: Schema.Struct({ cpu_usage: Schema.Struct({ total_usage: Schema.Finite }) }),
  networks: Schema.optionalKey(
    Schema.Record(Schema.String, Schema.Struct({ rx_bytes: Schema.Finite, tx_bytes: Schema.Finite }))
  )
})
const decodeStats = Schema.decodeUnknownOption(Stats)

/** Returns the figures of the engine's sample, unless it has none, as at a stop. */
export const figuresOf = (sample: unknown): Omit<Usage, "uptime_ms"> | undefined => {
  const read = decodeStats(sample)
  if (read._tag === "None" || !(Date.parse(read.value.read) > 0)) return undefined
  const { cpu_stats, memory_stats, networks = {} } = read.value
  const { inactive_file, total_inactive_file } = memory_stats.stats ?? {}
  // The page cache is reclaimable; cgroup v1 and v2 name it differently.
  const cache = total_inactive_file ?? inactive_file ?? 0
  const sum = (figure: "rx_bytes" | "tx_bytes") =>
    Object.values(networks).reduce((total, figures) => total + figures[figure], 0)
  return {
    memory_bytes: Math.max(0, (memory_stats.usage ?? 0) - cache),
    cpu_ms: cpu_stats.cpu_usage.total_usage / 1e6,
    network: { rx_bytes: sum("rx_bytes"), tx_bytes: sum("tx_bytes") }
  }
}

/** Measures a container, without the engine's wait for a second sample. */
export const measure = (id: string) =>
  onContainer(id, "read the stats of the container", (container, options) =>
    container.stats({ stream: false, "one-shot": true, ...options })
  ).pipe(
    Effect.map(figuresOf),
    Effect.catch((error) => Effect.as(Effect.logDebug(error.message), undefined))
  )
