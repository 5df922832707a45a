import { isDeepStrictEqual } from "node:util"
import { Effect, Latch, Option, type Scope, Stream } from "effect"
import { NodeId, type ServerId } from "../../../../src/contract/domain/Id.ts"
import type { InstallState } from "../../../../src/contract/domain/InstallState.ts"
import {
  type DaemonServer,
  MOST_REPORTS,
  type PowerAction,
  type Registration,
  type RegistrationAnswer,
  type Report,
  type ServerSpec
} from "../../../../src/contract/domain/NodeMessages.ts"
import type { Crash } from "../../../../src/contract/domain/ServerEvent.ts"
import type { ServerStatus } from "../../../../src/contract/domain/ServerStatus.ts"
import type { ControlPlane } from "../../../../src/contract/nodeApi/ControlPlaneApi.ts"
import {
  type Daemon,
  type DaemonError,
  DaemonRefused,
  NodeUnreachable
} from "../../../../src/contract/nodeApi/Daemon.ts"
import { FileRefused } from "../../../../src/contract/nodeApi/NodeFiles.ts"
import { RecentRemovals } from "../../../../src/daemon/instances/instanceRemoval.ts"
import { host, systemInfo } from "../../../support/samples.ts"
import { FakeBackups } from "./FakeBackups.ts"

interface Instance {
  /** What process and files have. */
  spec: ServerSpec
  /** The newest definition. */
  next?: ServerSpec
  status: ServerStatus
  install: InstallState
  /** The caller whose stop holds until the next start. */
  stopped_by?: string
}

type Body = Report extends infer R ? (R extends Report ? Omit<R, "server_id" | "sequence"> : never) : never

/** The fault of the next call: the request is lost, its response is lost, or it is refused. */
export type Fault = "request-lost" | "answer-lost" | DaemonRefused

export const crash: Crash = { reason: "exit code 1", exit_code: 1, timestamp: "2026-01-01T00:00:00.000Z" }

/** Statuses in which an action has an effect; a paused server is unpaused first. */
const allowed: Readonly<Record<PowerAction, ReadonlyArray<ServerStatus>>> = {
  start: ["offline"],
  stop: ["starting", "running", "paused"],
  kill: ["starting", "running", "stopping", "paused"],
  pause: ["running"],
  unpause: ["paused"],
  restart: ["offline", "starting", "running", "paused"]
}

const refuse = (status: 404 | 409 | 422 | 500, detail: string): DaemonRefused =>
  new DaemonRefused({ status, detail, hint: "Look at its state." })

const noFiles = () =>
  new FileRefused({ status: 422, detail: "not offered by this node", hint: "Use another node." })

/**
 * A daemon in memory that outlives its control planes. It keeps reports until they are acknowledged, like a real one,
 * and carries out calls at once.
 */
export class FakeDaemon {
  readonly node_id: NodeId
  boot = 1
  /** The end of an installation; `manual`: when {@link finishInstall} is called. */
  installs: "ready" | "failed" | "manual" = "ready"
  readonly instances = new Map<ServerId, Instance>()
  readonly held = new Set<ServerId>()
  /** Servers whose files are being fetched. */
  readonly arriving = new Set<ServerId>()
  readonly #removed = new RecentRemovals()
  readonly #arrivals = Latch.makeUnsafe(false)
  /** The files of servers. */
  readonly files = new Map<ServerId, string>()
  /** Deleted servers whose files are kept. */
  readonly kept = new Map<ServerId, Instance>()
  readonly backups = new FakeBackups({
    files: this.files,
    status: (id) => this.instances.get(id)?.status,
    call: (method, id, act) => this.#call(method, id, act)
  })
  /** The files of servers unknown to the control plane. */
  readonly lost = new Map<ServerId, string>()
  readonly calls: Array<string> = []
  /** The lines that the consoles of servers got. */
  readonly lines: Array<string> = []
  readonly faults = new Map<string, Array<Fault>>()
  readonly unsent: Array<Report> = []
  /** Sequence of the last report by server; kept when the server is deleted. */
  readonly sequences = new Map<ServerId, number>()
  readonly #news = Latch.makeUnsafe(false)
  /** Runs before and after every call and report, so that a test can kill the control plane there. */
  step: Effect.Effect<void> = Effect.void
  /** While closed, reports wait. */
  readonly gate = Latch.makeUnsafe(true)

  constructor(node_id: string) {
    this.node_id = NodeId.make(node_id)
  }

  get boot_id() {
    return `boot-${this.boot}`
  }

  fault(method: string, ...faults: ReadonlyArray<Fault>) {
    this.faults.set(method, [...(this.faults.get(method) ?? []), ...faults])
  }

  view(id: ServerId): DaemonServer | undefined {
    const instance = this.instances.get(id)
    return instance === undefined
      ? undefined
      : {
          id,
          status: instance.status,
          install: instance.install,
          unsent_reports: this.unsent.filter((report) => report.server_id === id).length,
          ...(this.held.has(id) ? { held: true } : {}),
          defined_at: (instance.next ?? instance.spec).defined_at ?? 0,
          uses: instance.spec.defined_at ?? 0
        }
  }

  get registration(): Registration {
    return {
      id: this.node_id,
      name: this.node_id,
      location: "",
      url: "http://node",
      version: systemInfo.version,
      boot_id: this.boot_id,
      allocations: [],
      capacity: { memory_bytes: 1, cpu_threads: 1, disk_bytes: 1 },
      runtimes: ["process"],
      system: host,
      servers: [...this.instances.keys()].flatMap((id) => this.view(id) ?? []),
      kept: [...this.kept.keys()]
    }
  }

  queueReport(server_id: ServerId, body: Body) {
    const sequence = (this.sequences.get(server_id) ?? 0) + 1
    this.sequences.set(server_id, sequence)
    this.unsent.push({ server_id, sequence, ...body })
    this.#news.openUnsafe()
  }

  move(id: ServerId, status: ServerStatus, transient = false) {
    const instance = this.instances.get(id)
    if (instance === undefined || instance.status === status) return
    if (status === "starting") this.#take(instance)
    instance.status = status
    this.queueReport(id, {
      type: "status",
      status,
      transient,
      ...this.#uses(instance),
      ...this.#run(instance)
    })
  }

  #uses({ spec }: Instance) {
    return { uses: spec.defined_at ?? 0 }
  }

  #run({ stopped_by }: Instance) {
    return stopped_by === undefined ? {} : { run: { stopped_by } }
  }

  #take(instance: Instance) {
    if (instance.next !== undefined) instance.spec = instance.next
    delete instance.next
  }

  #define(instance: Instance, spec: ServerSpec) {
    const { defined_at = 0 } = instance.next ?? instance.spec
    if ((spec.defined_at ?? 0) <= defined_at) return
    instance.next = spec
    if (instance.status !== "offline") return
    this.#take(instance)
    if (spec.reinstall === true) this.#install(instance, false)
  }

  finishInstall(id: ServerId, phase: "ready" | "failed") {
    const instance = this.instances.get(id)
    if (instance === undefined) return
    instance.install = phase === "ready" ? { phase } : { phase, exit_code: 1, failure_reason: "exit code 1" }
    instance.status = "offline"
    this.queueReport(id, { type: "install-status", install: instance.install, ...this.#uses(instance) })
    const own = { ...this.#uses(instance), ...this.#run(instance) }
    this.queueReport(id, { type: "status", status: "offline", transient: true, ...own })
  }

  crash(id: ServerId) {
    this.queueReport(id, { type: "crash", crash })
    this.move(id, "offline")
  }

  /** Registers and then sends reports, in order, until the scope closes. */
  serve(plane: ControlPlane["Service"]): Effect.Effect<void, never, Scope.Scope> {
    const register = Effect.gen({ self: this }, function* () {
      const answer = yield* plane.register(this.registration)
      this.reconcile(answer)
    })
    const send = Effect.gen({ self: this }, function* () {
      yield* this.gate.await
      const reports = this.unsent.slice(0, MOST_REPORTS)
      if (reports.length === 0) {
        this.#news.closeUnsafe()
        return yield* this.#news.await
      }
      yield* this.step
      const failures = yield* plane.reports(this.node_id, this.boot_id, reports)
      yield* this.step
      const first = failures.findIndex((failure) => failure !== undefined)
      for (const report of first < 0 ? reports : reports.slice(0, first)) {
        const at = this.unsent.indexOf(report)
        if (at >= 0) this.unsent.splice(at, 1)
      }
      const failure = failures[first]
      if (failure !== undefined) return yield* failure
    }).pipe(
      Effect.catchTag("RegistrationRequired", () => register),
      Effect.catch((error) => Effect.logDebug(error.detail))
    )
    const fetch = Effect.gen({ self: this }, function* () {
      yield* this.#arrivals.await
      yield* this.#arrivals.close
      for (const id of [...this.arriving]) {
        yield* this.step
        const archive = yield* plane.files(this.node_id, id)
        const pieces = yield* Stream.runCollect(archive)
        this.files.set(id, pieces.map((piece) => new TextDecoder().decode(piece)).join(""))
        this.arriving.delete(id)
        this.finishInstall(id, "ready")
      }
    }).pipe(
      Effect.scoped,
      Effect.catch(() => Effect.delay(this.#arrivals.open, "2 millis"))
    )
    this.#arrivals.openUnsafe()
    return Effect.gen(function* () {
      yield* Effect.orDie(register)
      yield* Effect.forkScoped(Effect.forever(Effect.andThen(Effect.yieldNow, fetch)))
      yield* Effect.forkScoped(Effect.forever(Effect.andThen(Effect.yieldNow, send)))
    })
  }

  /** Does what the answer to a registration says. */
  reconcile({ delete: deleted, keep = [], unknown = [] }: RegistrationAnswer) {
    for (const id of deleted) this.#forget(id)
    for (const { id } of unknown) this.setAside(id)
    for (const id of keep) this.#keep(id)
  }

  setAside(id: ServerId) {
    if (this.instances.get(id)?.spec.definition.save === true) this.lost.set(id, this.files.get(id) ?? "")
    this.#forget(id)
  }

  #forget(id: ServerId) {
    this.backups.removed(id)
    this.backups.placed.delete(id)
    this.instances.delete(id)
    this.kept.delete(id)
    this.files.delete(id)
    this.held.delete(id)
    this.arriving.delete(id)
  }

  /** Ends a server whose files stay. */
  #keep(id: ServerId) {
    const instance = this.instances.get(id)
    if (instance === undefined) return
    this.backups.removed(id)
    this.instances.delete(id)
    this.held.delete(id)
    this.arriving.delete(id)
    this.kept.set(id, instance)
  }

  /** Gives a kept server back, offline. */
  #restore(spec: ServerSpec, instance: Instance) {
    const { next: _, ...same } = instance
    const { allocations, last_sequence = 0 } = spec
    this.kept.delete(spec.id)
    this.#removed.forget(spec.id)
    this.sequences.set(spec.id, Math.max(this.sequences.get(spec.id) ?? 0, last_sequence))
    for (let at = this.unsent.length - 1; at >= 0; at--)
      if (this.unsent[at]?.server_id === spec.id) this.unsent.splice(at, 1)
    const given = { ...instance.spec, allocations, last_sequence }
    const restored = { ...same, spec: given, status: "offline" as const }
    this.instances.set(spec.id, restored)
    this.#define(restored, spec)
  }

  #call<A>(method: string, id: string, act: () => A | DaemonRefused): Effect.Effect<A, DaemonError> {
    const run = Effect.suspend((): Effect.Effect<A, DaemonError> => {
      this.calls.push(`${method} ${id}`)
      const fault = this.faults.get(method)?.shift()
      if (fault instanceof DaemonRefused) return Effect.fail(fault)
      if (fault === "request-lost") return Effect.fail(new NodeUnreachable({ node_id: this.node_id }))
      const answer = act()
      if (fault === "answer-lost") return Effect.fail(new NodeUnreachable({ node_id: this.node_id }))
      return answer instanceof DaemonRefused ? Effect.fail(answer) : Effect.succeed(answer)
    })
    const step = Effect.suspend(() => this.step)
    return step.pipe(
      Effect.andThen(Effect.exit(run)),
      Effect.tap(() => step),
      Effect.flatten
    )
  }

  /** Acts on a server of the daemon. */
  #on<A>(method: string, id: ServerId, act: (instance: Instance) => A | DaemonRefused) {
    return this.#call(method, id, () => {
      const instance = this.instances.get(id)
      return instance === undefined ? refuse(404, `server not found: ${id}`) : act(instance)
    })
  }

  #install(instance: Instance, arrives = instance.spec.arrival !== undefined) {
    const { id } = instance.spec
    instance.install = { phase: "installing" }
    instance.status = "installing"
    this.queueReport(id, { type: "install-status", install: instance.install })
    if (arrives && this.installs === "ready") {
      this.arriving.add(id)
      this.#arrivals.openUnsafe()
    } else if (this.installs !== "manual") this.finishInstall(id, this.installs)
  }

  #power(instance: Instance, action: PowerAction, by?: string): DaemonRefused | undefined {
    const { id } = instance.spec
    if (action === "start" || action === "restart") delete instance.stopped_by
    else if (by !== undefined && (action === "stop" || action === "kill")) instance.stopped_by = by
    const steps: Record<PowerAction, ReadonlyArray<ServerStatus>> = {
      start: ["starting", "running"],
      stop: ["stopping", "offline"],
      kill: ["offline"],
      pause: ["paused"],
      unpause: ["running"],
      restart: ["stopping", "offline", "starting", "running"]
    }
    const { install, status: before } = instance
    if (action !== "restart" && before === steps[action].at(-1)) return
    if (action === "start" && before === "starting") return
    if (this.held.has(id) && (action === "start" || action === "restart")) {
      return refuse(409, "the server is migrating")
    }
    if ((action === "start" || action === "restart") && this.backups.works(id, "restore"))
      return refuse(409, "the server is being restored")
    if ((action === "start" || action === "restart") && install.phase !== "ready")
      return refuse(409, `the installation is ${install.phase}`)
    if (!allowed[action].includes(before)) return refuse(409, `server is ${before}`)
    if (action === "restart" && before === "offline") return this.#power(instance, "start")
    if (before === "paused") this.move(id, "running")
    for (const status of steps[action]) this.move(id, status, action === "restart")
  }

  readonly daemon: Daemon = {
    system: Effect.succeed(systemInfo),
    create: (spec) =>
      this.#call("create", spec.id, () => {
        const found = this.instances.get(spec.id)
        const stale = spec.arrival !== undefined && found?.spec.arrival !== spec.arrival
        if (stale) this.#forget(spec.id)
        const { last_sequence = 0 } = spec
        const isBefore = (this.sequences.get(spec.id) ?? 0) < last_sequence
        const isElsewhere =
          (found?.spec.last_sequence ?? 0) < last_sequence &&
          !isDeepStrictEqual(found?.spec.allocations, spec.allocations)
        if (spec.restore === true && (isBefore || isElsewhere)) this.#keep(spec.id)
        const known = this.instances.get(spec.id)
        const kept = this.kept.get(spec.id)
        if (known !== undefined) this.#define(known, spec)
        else if (spec.restore === true) {
          if (kept === undefined)
            return refuse(404, `the files of the deleted server are not kept: ${spec.id}`)
          this.#restore(spec, kept)
        } else {
          if (this.#removed.covers(spec, performance.now()))
            return refuse(409, `server was removed: ${spec.id}`)
          if (kept !== undefined) {
            this.#restore(spec, kept)
            return this.view(spec.id) ?? refuse(500, "the server is gone")
          }
          this.#removed.forget(spec.id)
          const { stopped_by } = spec
          const own = stopped_by === undefined ? {} : { stopped_by }
          const instance: Instance = { spec, status: "installing", install: { phase: "pending" }, ...own }
          this.instances.set(spec.id, instance)
          this.sequences.set(spec.id, spec.last_sequence ?? 0)
          this.#install(instance)
        }
        return this.view(spec.id) ?? refuse(500, "the server is gone")
      }),
    find: (id) => this.#on("find", id, () => this.view(id) ?? refuse(500, "the server is gone")),
    hold: (id, held) =>
      this.#on("hold", id, (instance) => {
        if (held && (instance.status === "installing" || this.backups.works(id)))
          return refuse(409, "the node is working on the files of the server")
        const view = this.view(id)
        if (view === undefined) return refuse(500, "the server is gone")
        if (held) this.held.add(id)
        else this.held.delete(id)
        return { ...view, up: instance.status === "running" || instance.status === "starting" }
      }),
    exportFiles: (id) =>
      this.#on("files", id, (instance) =>
        this.held.has(id) && instance.status === "offline"
          ? Stream.make(new TextEncoder().encode(this.files.get(id) ?? ""))
          : refuse(409, "the server is not held, or not offline")
      ),
    remove: (id, options) =>
      this.#call("remove", id, () => {
        const instance = this.instances.get(id)
        const spec = instance?.spec
        const inUse = instance?.install.phase === "ready" && !this.held.has(id)
        if (options?.moved === true && inUse) this.setAside(id)
        if (options?.kept === true && instance === undefined && this.kept.has(id)) return
        const was = { sequence: this.sequences.get(id) ?? 0, arrival: spec?.arrival }
        this.#removed.add(id, performance.now(), spec === undefined ? undefined : was)
        if (options?.kept === true) this.#keep(id)
        else this.#forget(id)
      }),
    power: (id, action, _seconds, by) =>
      this.#on(
        "power",
        id,
        (instance) =>
          this.#power(instance, action, by) ??
          this.unsent.findLast((report) => report.server_id === id)?.sequence
      ),
    commands: (id, lines) =>
      this.#on("commands", id, () => {
        this.lines.push(...lines)
        const text = lines.findLast((line) => line.startsWith("write "))
        if (text !== undefined) this.files.set(id, text)
      }),
    register: Effect.void,
    reset: (id) => this.#on("reset", id, () => undefined),
    reinstall: (id) =>
      this.#on("reinstall", id, (instance) => {
        if (this.held.has(id)) return refuse(409, "the server is migrating")
        if (instance.status !== "offline") return refuse(409, `the server is ${instance.status}`)
        return this.#install(instance, false)
      }),
    status: (id) => this.#on("status", id, (instance) => instance.status),
    stats: (id) =>
      this.#on("stats", id, (instance) => ({
        memory_bytes: 0,
        memory_limit_bytes: 0,
        cpu_absolute: 0,
        cpu_absolute_limit: 0,
        network: { rx_bytes: 0, tx_bytes: 0 },
        uptime: 0,
        state: instance.status,
        disk_bytes: 0,
        disk_max: 0,
        overlay_bytes: 0
      })),
    statsOfMany: (ids) =>
      Effect.map(
        Effect.andThen(
          Effect.sync(() => this.calls.push("statsOfMany")),
          Effect.forEach(ids, (id) =>
            Effect.map(Effect.option(this.daemon.stats(id, { update_disk_usage: false })), (found) => [
              id,
              Option.getOrNull(found)
            ])
          )
        ),
        Object.fromEntries
      ),
    logs: (id) => this.#on("logs", id, () => ({ items: ["line"], total: 1 })),
    install: (id) =>
      this.#on("install", id, ({ install }) => ({
        ...install,
        entrypoint: "",
        script: "",
        skip_scripts: true
      })),
    installLogs: (id) => this.#on("installLogs", id, () => ({ items: ["installed"], total: 1 })),
    console: (id) => this.#on("console", id, () => Stream.make("line")),
    files: {
      list: noFiles,
      stat: noFiles,
      read: noFiles,
      write: noFiles,
      change: noFiles,
      session: noFiles,
      begin: noFiles,
      progress: noFiles,
      cancel: noFiles,
      archive: noFiles,
      receive: noFiles,
      search: noFiles,
      diff: noFiles,
      uploads: { begin: noFiles, find: noFiles, append: noFiles, end: noFiles, endOf: noFiles }
    },
    backups: this.backups.calls
  }
}
