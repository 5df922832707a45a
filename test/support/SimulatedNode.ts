/**
 * A node without processes that speaks the protocol over HTTP: it registers, sends heartbeats, carries out calls at
 * once, and reports. It can be disconnected, frozen and killed, and its messages can be lost, repeated, delayed or
 * reordered.
 */

import * as NodeServices from "@effect/platform-node/NodeServices"
import { type Duration, Effect, Exit, Latch, Layer, Schedule, Scope, Semaphore } from "effect"
import { HttpServer } from "effect/http"
import { DaemonHttpLayer } from "../../src/app/daemonHttp.ts"
import type { ServerId } from "../../src/contract/domain/Id.ts"
import { MOST_REPORTS, type Registration, type Report } from "../../src/contract/domain/NodeMessages.ts"
import { ServedDaemon } from "../../src/daemon/http.ts"
import { NodeToken } from "../../src/daemon/uplink/ControlPlaneClient.ts"
import { FakeDaemon } from "../controlPlane/servers/support/FakeDaemon.ts"
import type { Random } from "./random.ts"
import { type Answer, requestTo, ServiceFailed } from "./Service.ts"

/** The probability of each fault of a message, in percent; `delay` is its maximum in ms. */
export interface MessageFaults {
  readonly requestLost?: number
  readonly responseLost?: number
  readonly repeated?: number
  /** Sends an older report of the same server again, after or beside a newer one. */
  readonly reordered?: number
  readonly delay?: number
}

export interface SimulatedNodeOptions {
  readonly id: string
  /** With the scope `Node`. */
  readonly key: string
  /** The URLs of the control plane. With several, `random` chooses one for each message; without it they alternate. */
  readonly control: ReadonlyArray<string>
  /** Ports of 127.0.0.1 for its servers, such as `25565-25664`. */
  readonly ports: string
  /** Interval of heartbeats; default 10 s. */
  readonly heartbeat?: Duration.Input
  readonly random?: Random
  readonly messageFaults?: MessageFaults
  /** Overrides fields of the registration. */
  readonly registration?: Partial<Registration>
}

const MEMORY = 1e15
const REPORTS = 16
/** Timeout of a response. */
const RESPONSE_TIMEOUT = "5 seconds"
const retries = Schedule.min([Schedule.exponential("10 millis"), Schedule.spaced("200 millis")])

class Lost extends Error {
  readonly _tag = "Lost"
}

/** A report in short form; an installation only appears if a status follows from it. */
const brief = (report: Report): ReadonlyArray<string> => {
  switch (report.type) {
    case "status":
      return [report.status]
    case "crash":
      return [`crash ${report.crash.reason}`]
    case "install-status":
      return report.install.phase === "ready" || report.install.phase === "failed" ? ["offline"] : []
  }
}

/** Removes repeated statuses, because only changes are published. */
export const changes = (statuses: ReadonlyArray<string>): ReadonlyArray<string> =>
  statuses.filter((status, index) => status.startsWith("crash") || status !== statuses[index - 1])

export type SimulatedNode = Effect.Success<ReturnType<typeof makeSimulatedNode>>

/** Starts a node and returns once it is registered; the node ends with the scope. */
export const makeSimulatedNode = Effect.fnUntraced(function* (options: SimulatedNodeOptions) {
  const { id, key, messageFaults = {}, random } = options
  const scope = yield* Effect.scope
  const brain = new FakeDaemon(id)
  /** Closed while the node is disconnected. */
  const cable = yield* Latch.make(true)
  const permits = yield* Semaphore.make(REPORTS)
  const sentReports = new Map<string, Array<string>>()
  const old = new Map<string, Array<Report>>()
  const active = new Set<string>()
  const chance = (percent: number | undefined) => (random?.below(100) ?? 100) < (percent ?? 0)
  const several = options.control.length > 1
  let turn = 0
  let bootScope = yield* Scope.fork(scope)
  let url = ""
  let registrations = 0
  let deletedServers: ReadonlyArray<ServerId> = []
  let unknown: ReadonlyArray<ServerId> = []
  let token: NodeToken["Service"] | undefined

  /** Sends one message; fails with `Lost` if no response arrives. */
  const send = (path: string, body: unknown): Effect.Effect<Answer, Lost | ServiceFailed> =>
    Effect.gen(function* () {
      if (messageFaults.delay !== undefined && random !== undefined)
        yield* Effect.sleep(random.below(messageFaults.delay + 1))
      if (!cable.isOpen() || chance(messageFaults.requestLost)) return yield* Effect.fail(new Lost())
      // A test may replace the addresses.
      const { control } = options
      const to =
        control[random !== undefined && several ? random.below(control.length) : turn++ % control.length]
      if (to === undefined) return yield* new ServiceFailed({ message: "no address of a control plane" })
      const one = requestTo(to, key)("POST", `/api/nodes/${id}${path}`, { body }).pipe(
        Effect.timeoutOrElse({ duration: RESPONSE_TIMEOUT, orElse: () => Effect.fail(new Lost()) })
      )
      if (chance(messageFaults.repeated)) yield* Effect.forkIn(Effect.ignore(one), bootScope)
      const answer = yield* one
      // A response that arrives after the disconnection is lost.
      return !cable.isOpen() || chance(messageFaults.responseLost) ? yield* Effect.fail(new Lost()) : answer
    })

  const register = Effect.gen(function* () {
    const answer = yield* send("/register", {
      ...brain.registration,
      url,
      allocations: [{ address: "127.0.0.1", alias: "", force_outgoing_ip: false, ports: options.ports }],
      capacity: { memory_bytes: MEMORY, cpu_threads: 64, disk_bytes: MEMORY },
      ...options.registration
    })
    if (answer.status !== 200) {
      return yield* new ServiceFailed({ message: `register: ${answer.status} ${answer.text}` })
    }
    registrations += 1
    token?.set(answer.json.token)
    deletedServers = answer.json.delete
    unknown = (answer.json.unknown ?? []).map(({ id }: { readonly id: ServerId }) => id)
    brain.reconcile(answer.json)
  })
  const registering = yield* Semaphore.make(1)
  const registerAgain = Effect.suspend(() => {
    const before = registrations
    return registering.withPermit(
      Effect.suspend(() => (registrations > before ? Effect.void : Effect.retry(register, retries)))
    )
  })

  const sendReports = Effect.fnUntraced(function* (reports: ReadonlyArray<Report>) {
    const answer = yield* send("/internal/events", { boot_id: brain.boot_id, reports })
    if (answer.status === 200 && answer.json.failures.length === 0) return
    if (answer.status === 404 || answer.json?.failures?.[0]?.status === 404) yield* registerAgain
    return yield* new ServiceFailed({ message: `reports: ${answer.status} ${answer.text}` })
  })

  /** Retries until the reports of a server are acknowledged. */
  const deliver = Effect.fnUntraced(function* (server_id: string, reports: ReadonlyArray<Report>) {
    const older = old.get(server_id) ?? []
    const again = older[random?.below(older.length) ?? 0]
    if (again !== undefined && chance(messageFaults.reordered)) {
      yield* Effect.forkIn(
        Effect.ignore(send("/internal/events", { boot_id: brain.boot_id, reports: [again] })),
        bootScope
      )
    }
    yield* Effect.retry(permits.withPermit(sendReports(reports)), retries)
    old.set(server_id, [...older, ...reports])
  })

  const work = Effect.fnUntraced(function* (server_id: string) {
    while (true) {
      const reports = brain.unsent.filter((report) => report.server_id === server_id).slice(0, MOST_REPORTS)
      if (reports.length === 0) {
        // No yield between the check and this line: a later report starts a new sender.
        active.delete(server_id)
        return
      }
      yield* deliver(server_id, reports)
      for (const report of reports) {
        const at = brain.unsent.indexOf(report)
        if (at >= 0) brain.unsent.splice(at, 1)
      }
    }
  })
  const wake = (server_id: string) => {
    if (active.has(server_id)) return
    active.add(server_id)
    Effect.runFork(Effect.forkIn(work(server_id), bootScope))
  }
  const queueReport = brain.queueReport.bind(brain)
  brain.queueReport = (server_id, body) => {
    queueReport(server_id, body)
    const report = brain.unsent.at(-1)
    if (report !== undefined)
      sentReports.set(server_id, [...(sentReports.get(server_id) ?? []), ...brief(report)])
    wake(server_id)
  }
  // While disconnected, calls get no response.
  brain.step = cable.await

  const beats = Effect.gen(function* () {
    yield* Effect.sleep(options.heartbeat ?? "10 seconds")
    const beat = { boot_id: brain.boot_id, load: 1, memory_used_bytes: 2, disk_used_bytes: 3 }
    const answer = yield* Effect.option(send("/internal/heartbeat", beat))
    if (answer._tag === "Some" && answer.value.status === 404) yield* registerAgain
  })

  /** Starts as a process would, from the state on its disk. */
  const start = Effect.gen(function* () {
    const context = yield* Layer.build(
      DaemonHttpLayer({ host: "127.0.0.1", port: 0 }).pipe(
        Layer.provideMerge(Layer.mergeAll(NodeToken.layer, ServedDaemon.layer)),
        Layer.provide(NodeServices.layer)
      )
    )
    yield* Effect.gen(function* () {
      const served = yield* ServedDaemon
      const { address } = yield* HttpServer.HttpServer
      token = yield* NodeToken
      url = `http://127.0.0.1:${"port" in address ? address.port : 0}`
      yield* served.provideDaemon(brain.daemon)
      yield* served.provideServers(() => brain.registration.servers)
    }).pipe(Effect.provideContext(context))
    yield* registerAgain
    for (const { server_id } of [...brain.unsent]) wake(server_id)
    yield* Effect.forkScoped(Effect.forever(beats))
  })
  yield* Scope.provide(start, bootScope)

  const stop = Effect.suspend(() => Scope.close(bootScope, Exit.void))

  return {
    id,
    /** The instances, and their own changes: `move`, `crash`, `finishInstall`. */
    brain,
    url: () => url,
    registrations: () => registrations,
    /** The servers that the last registration returned as deleted and as unknown. */
    deletedServers: () => deletedServers,
    unknown: () => unknown,
    /** Every report sent for a server, in order. */
    sentReports: (server_id: string): ReadonlyArray<string> => sentReports.get(server_id) ?? [],
    /** Disconnects the node in both directions. */
    cut: cable.close,
    heal: cable.open,
    kill: stop,
    /** Starts the node again after {@link kill}, with another boot id. */
    restart: Effect.gen(function* () {
      brain.boot += 1
      brain.backups.restarted()
      bootScope = yield* Scope.fork(scope)
      // The senders ended with the previous boot.
      active.clear()
      yield* Scope.provide(start, bootScope)
    }),
    /** Sends a message without injected faults. */
    post: (path: string, body?: unknown) =>
      requestTo(options.control[0] ?? "", key)(
        "POST",
        `/api/nodes/${id}${path}`,
        body === undefined ? {} : { body }
      ),
    /** Whether every report is acknowledged. */
    quiet: () => brain.unsent.length === 0
  }
})
