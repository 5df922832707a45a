import { existsSync, readdirSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import { Effect, Exit, Function, Layer, Logger, References, Scope } from "effect"
import { NodeId, ServerId } from "../../src/contract/domain/Id.ts"
import type {
  Registration,
  Report,
  ServerSpec,
  UnknownServer
} from "../../src/contract/domain/NodeMessages.ts"
import type { ServerDefinition } from "../../src/contract/domain/ServerDefinition.ts"
import type { InstallScript, ProcessConfiguration } from "../../src/contract/domain/Software.ts"
import {
  ControlPlane,
  ControlPlaneUnavailable,
  RegistrationRequired
} from "../../src/contract/nodeApi/ControlPlaneApi.ts"
import { readProc } from "../../src/daemon/host/procfs.ts"
import { NodeDaemon, type NodeDaemonOptions } from "../../src/daemon/NodeDaemon.ts"
import type { Uplink } from "../../src/daemon/uplink/uplink.ts"
import { until } from "../support/eventually.ts"
import { temporaryFolder } from "../support/temporaryFolder.ts"

export { until } from "../support/eventually.ts"
export { temporaryFolder as dataFolder } from "../support/temporaryFolder.ts"

const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
/** A unique server id. */
export const newId = (): ServerId =>
  ServerId.make(`srv_${Array.from({ length: 26 }, () => digits[Math.floor(Math.random() * 32)]).join("")}`)

/** Prints `ready`, echoes its input as `got <line>`, ends with `stop`. */
export const echoServer = `sh -c 'echo ready; while read -r line; do [ "$line" = stop ] && exit 0; echo "got $line"; done'`

export interface SpecOptions {
  readonly id?: string
  readonly process?: Partial<ProcessConfiguration>
  readonly install?: Partial<InstallScript> | null
  readonly definition?: Partial<ServerDefinition>
  readonly allocations?: Partial<ServerSpec["allocations"]>
}

/** A server as in the control plane's request. */
export const specOf = (options: SpecOptions = {}): ServerSpec => ({
  id: ServerId.make(options.id ?? newId()),
  allocations: {
    force_outgoing_ip: false,
    default: { ip: "127.0.0.1", port: 25565 },
    alias: "",
    mappings: { "127.0.0.1": [25565] },
    ...options.allocations
  },
  definition: {
    blueprint_id: "test",
    software: "echo",
    version: "1.0",
    image: "",
    process: {
      invocation: echoServer,
      stop_command: "stop",
      online_signal: "ready",
      start_timeout: 20,
      clean_exit: "crash",
      ...options.process
    },
    install_script:
      options.install === undefined || options.install === null
        ? null
        : {
            entrypoint: "sh",
            script: "true",
            skip_scripts: false,
            timeout: 20,
            warmup: false,
            warmup_timeout: 20,
            warmup_retries: 0,
            warmup_failure_policy: "fail",
            post_warmup_script: "",
            post_warmup_timeout: 20,
            ...options.install
          },
    limits: {},
    ports: 1,
    configs: {},
    volumes: [],
    mounts: [],
    copy: [],
    env: {},
    runtimes: ["process"],
    placement: { locations: [], anti_affinity: false },
    restart: { on_crash: false, max_per_hour: 5 },
    save: true,
    ...options.definition
  }
})

/** A simulated control plane that records all messages. */
export interface Recorder {
  readonly reports: Array<Report>
  readonly registrations: Array<Registration>
  heartbeats: number
  /** While set, every call fails. */
  away: boolean
  /** Ids that the next registration tells the node to delete. */
  remove: Array<ServerId>
  /** Ids that the next registration tells a caller has stopped. */
  stopped?: Array<ServerId>
  /** Servers that the next registration reports as unknown. */
  unknown: Array<UnknownServer>
  /** Makes the next calls fail with "register first". */
  forgotten: boolean
  /** Collects log lines of warnings and errors, if present. */
  log?: Array<string>
  /** Answers questions for other ports. */
  replacePorts?: Uplink["replacePorts"]
  /** Provides files of servers that arrive from another node. */
  files?: ControlPlane["Service"]["files"] extends (node_id: NodeId, id: ServerId) => infer A
    ? (id: ServerId) => A
    : never
}

export const recorder = (): Recorder => ({
  reports: [],
  registrations: [],
  heartbeats: 0,
  away: false,
  remove: [],
  unknown: [],
  forgotten: false
})

export const controlPlane = (notes: Recorder) => {
  const gate = Effect.gen(function* () {
    if (notes.away) return yield* new ControlPlaneUnavailable({ detail: "away" })
    if (notes.forgotten) return yield* new RegistrationRequired({ node_id: NodeId.make("n") })
  })
  return Layer.succeed(ControlPlane, {
    register: (registration) =>
      Effect.suspend(() => {
        if (notes.away) return Effect.fail(new ControlPlaneUnavailable({ detail: "away" }))
        notes.forgotten = false
        notes.registrations.push(registration)
        const { remove, stopped = [], unknown } = notes
        return Effect.succeed({ token: "token", delete: remove, unknown, stopped })
      }),
    heartbeat: () =>
      Effect.map(gate, () => {
        notes.heartbeats++
      }),
    disconnect: () => Effect.void,
    replacePorts: (_, __, id, taken) =>
      notes.replacePorts?.(id, taken) ?? Effect.succeed({ ...specOf().allocations, mappings: {} }),
    files: (_, id) =>
      notes.files?.(id) ??
      Effect.fail(new ControlPlaneUnavailable({ detail: "no server comes from elsewhere" })),
    reports: (_, __, reports) =>
      Effect.map(gate, () => {
        for (const report of reports) {
          if (
            !notes.reports.some(
              (old) => old.server_id === report.server_id && old.sequence === report.sequence
            )
          ) {
            notes.reports.push(report)
          }
        }
        return []
      })
  })
}

export const optionsFor = (dataDir: string, more: Partial<NodeDaemonOptions> = {}): NodeDaemonOptions => ({
  node_id: NodeId.make("test-node"),
  name: "test",
  location: "here",
  url: "",
  version: "0.0.0",
  dataDir,
  allocations: [],
  allowedMounts: [],
  environment: { PATH: process.env.PATH },
  passEnv: [],
  heartbeatSeconds: 0.1,
  onShutdown: "keep",
  // Servers of these tests write outside their folders and report their pids; test/security tests isolation.
  isolation: { mode: "none" },
  ...more
})

/** Collects log lines of warnings and errors, also of background work that the effect starts. */
const loggedTo = (log: Array<string>) => {
  const keep = Logger.make(({ fiber, logLevel, message }) => {
    // Every daemon of these tests logs this line, see `optionsFor`.
    if (String(message).includes("MUSTER_PROCESS_ISOLATION is none")) return
    const { server_id } = fiber.getRef(References.CurrentLogAnnotations)
    log.push(`${logLevel} ${message}${server_id === undefined ? "" : ` server_id=${server_id}`}`)
  })
  return <A, E, R>(effect: Effect.Effect<A, E, R>) =>
    effect.pipe(
      Effect.provide(Logger.layer([keep])),
      Effect.provideService(References.MinimumLogLevel, "Warn")
    )
}

/** Opens a daemon until its scope ends or `close` is called; removes its servers with the scope. */
export const openDaemon = Effect.fnUntraced(function* (
  dataDir: string,
  notes: Recorder,
  more: Partial<NodeDaemonOptions> = {}
) {
  const scope = yield* Scope.fork(yield* Effect.scope)
  const layer = NodeDaemon.layer(optionsFor(dataDir, more)).pipe(Layer.provide(controlPlane(notes)))
  const { log } = notes
  const level = process.env.SHOW_LOG === undefined ? "None" : "All"
  const context = yield* Layer.buildWithScope(Layer.fresh(layer), scope).pipe(
    log === undefined ? Function.identity : loggedTo(log),
    log === undefined ? Effect.provideService(References.MinimumLogLevel, level) : Function.identity
  )
  const node = yield* Effect.provideContext(NodeDaemon, context)
  return { node, daemon: node.daemon, close: Scope.close(scope, Exit.void) }
})

/** Opens a daemon in its own or the given folder, with its warnings in `log`; removes all created servers with the scope. */
export const harness = Effect.fnUntraced(function* (
  more: Partial<NodeDaemonOptions> = {},
  given: string | undefined = undefined,
  log?: Array<string>
) {
  const dataDir = given ?? (yield* temporaryFolder)
  const notes = { ...recorder(), ...(log === undefined ? {} : { log }) }
  const { daemon, node, close } = yield* openDaemon(dataDir, notes, more)
  const ids = new Set<ServerId>()
  yield* Effect.addFinalizer(() =>
    Effect.forEach([...ids], (id) => Effect.ignore(daemon.remove(id)), { concurrency: 8 })
  )
  const statuses = (id: string) =>
    notes.reports.flatMap((report) =>
      report.server_id === id && report.type === "status" ? [report.status] : []
    )
  const crashes = (id: string) =>
    notes.reports.flatMap((report) =>
      report.server_id === id && report.type === "crash" ? [report.crash] : []
    )
  const lastInstall = (id: string) =>
    notes.reports
      .flatMap((report) =>
        report.server_id === id && report.type === "install-status" ? [report.install] : []
      )
      .at(-1)
  const lastStatus = (id: string) => statuses(id).at(-1)
  const create = Effect.fnUntraced(function* (options: SpecOptions = {}) {
    const spec = specOf(options)
    ids.add(spec.id)
    yield* daemon.create(spec)
    return spec.id
  })
  const installed = Effect.fnUntraced(function* (options: SpecOptions = {}) {
    const id = yield* create(options)
    yield* until(`${id} is installed`, () => lastStatus(id) === "offline")
    return id
  })
  const running = Effect.fnUntraced(function* (options: SpecOptions = {}) {
    const id = yield* installed(options)
    yield* daemon.power(id, "start", 30)
    yield* until(`${id} runs`, () => statuses(id).includes("running"))
    return id
  })
  return {
    dataDir,
    notes,
    daemon,
    node,
    close,
    ids,
    create,
    installed,
    running,
    statuses,
    crashes,
    lastInstall,
    lastStatus
  }
})

export type Harness = Effect.Success<ReturnType<typeof harness>>

/** Whether a process runs; a zombie does not count. */
export const alive = (pid: number): boolean => readProc(pid) !== undefined

/** Returns the number in a file; 0 while the file is missing or empty. */
export const pidIn = (path: string): number =>
  existsSync(path) ? Number(readFileSync(path, "utf8").trim()) : 0

export const sizeOf = (path: string): number => statSync(path, { throwIfNoEntry: false })?.size ?? 0

/** Returns the disk usage of a server's console. */
export const consoleBytes = (folder: string) =>
  readdirSync(folder)
    .filter((name) => name.startsWith("console."))
    .reduce((sum, name) => sum + sizeOf(join(folder, name)), 0)
