/**
 * A node without processes that speaks the protocol over HTTP: it registers, sends heartbeats, does what it is told at
 * once, and reports. It can be cut off, frozen, killed, and what it sends can get lost, repeated, delayed or overtaken.
 */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { type Duration, Effect, Exit, Latch, Layer, Schedule, Scope, Semaphore } from "effect"
import { HttpServer } from "effect/http"
import { DaemonHttpLayer } from "../../src/app/daemonHttp.ts"
import { NodeToken } from "../../src/daemon/controlPlane/NodeToken.ts"
import { ServedDaemon } from "../../src/daemon/controlPlane/ServedDaemon.ts"
import type { Registration, Report } from "../../src/domain/NodeMessages.ts"
import { FakeDaemon } from "../servers/support/FakeDaemon.ts"
import type { Random } from "./random.ts"
import { type Answer, requestTo, ServiceFailed } from "./Service.ts"

/** How often something goes wrong with a message, in percent; `delay` in ms at most. */
export interface Mischief {
  readonly requestLost?: number
  readonly answerLost?: number
  readonly repeated?: number
  /** An older report of the same server comes in once more, after or beside a newer one. */
  readonly overtaken?: number
  readonly delay?: number
}

export interface SimulatedNodeOptions {
  readonly id: string
  /** With the scope `Node`. */
  readonly key: string
  /** Where the control plane is; of several addresses each message goes to any, by `random`, or in turn. */
  readonly control: ReadonlyArray<string>
  /** Ports of 127.0.0.1 for its servers, such as `25565-25664`. */
  readonly ports: string
  /** Between two signs of life; default 10 s. */
  readonly heartbeat?: Duration.Input
  readonly random?: Random
  readonly mischief?: Mischief
  /** Goes over the registration. */
  readonly registration?: Partial<Registration>
}

const MEMORY = 1e15
const REPORTS = 16
/** How long an answer is waited for. */
const PATIENCE = "5 seconds"
const retries = Schedule.min([Schedule.exponential("10 millis"), Schedule.spaced("200 millis")])

class Lost extends Error {
  readonly _tag = "Lost"
}

/** What a report says, in short; an installation says something only where a status follows from it. */
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

/** Without repetitions of a status: only a change is told. */
export const changes = (statuses: ReadonlyArray<string>): ReadonlyArray<string> =>
  statuses.filter((status, index) => status.startsWith("crash") || status !== statuses[index - 1])

export type SimulatedNode = Effect.Success<ReturnType<typeof makeSimulatedNode>>

/** Starts a node; it is registered when this returns, and ends with the scope. */
export const makeSimulatedNode = Effect.fnUntraced(function* (options: SimulatedNodeOptions) {
  const { id, key, mischief = {}, random } = options
  const scope = yield* Effect.scope
  const brain = new FakeDaemon(id)
  /** Closed while nothing gets through. */
  const cable = yield* Latch.make(true)
  const permits = yield* Semaphore.make(REPORTS)
  const said = new Map<string, Array<string>>()
  const old = new Map<string, Array<Report>>()
  const active = new Set<string>()
  const chance = (percent: number | undefined) => (random?.below(100) ?? 100) < (percent ?? 0)
  const addresses = options.control.map((url) => requestTo(url, key))
  const several = addresses.length > 1
  let turn = 0
  let life = yield* Scope.fork(scope)
  let url = ""
  let registrations = 0
  let toldToDelete: ReadonlyArray<string> = []
  let unknown: ReadonlyArray<string> = []
  let token: NodeToken["Service"] | undefined

  /** One message; `Lost` where no answer came. */
  const send = (path: string, body: unknown): Effect.Effect<Answer, Lost | ServiceFailed> =>
    Effect.gen(function* () {
      if (mischief.delay !== undefined && random !== undefined)
        yield* Effect.sleep(random.below(mischief.delay + 1))
      if (!cable.isOpen() || chance(mischief.requestLost)) return yield* Effect.fail(new Lost())
      const to =
        addresses[
          random !== undefined && several ? random.below(addresses.length) : turn++ % addresses.length
        ]
      if (to === undefined) return yield* new ServiceFailed({ message: "no address of a control plane" })
      const one = to("POST", `/api/nodes/${id}${path}`, { body }).pipe(
        Effect.timeoutOrElse({ duration: PATIENCE, orElse: () => Effect.fail(new Lost()) })
      )
      if (chance(mischief.repeated)) yield* Effect.forkIn(Effect.ignore(one), life)
      const answer = yield* one
      // What comes back after the cable was pulled does not come back.
      return !cable.isOpen() || chance(mischief.answerLost) ? yield* Effect.fail(new Lost()) : answer
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
    toldToDelete = answer.json.delete
    for (const server of toldToDelete) brain.instances.delete(server)
    unknown = (answer.json.unknown ?? []).map(({ id }: { readonly id: string }) => id)
    for (const server of unknown) brain.setAside(server)
  })
  const registering = yield* Semaphore.make(1)
  const registerAgain = Effect.suspend(() => {
    const before = registrations
    return registering.withPermit(
      Effect.suspend(() => (registrations > before ? Effect.void : Effect.retry(register, retries)))
    )
  })

  const kinds = { status: "status", "install-status": "install-status", crash: "crash" } as const
  const sendReport = ({ server_id, type, ...report }: Report) =>
    send(`/internal/event/servers/${server_id}/${kinds[type]}`, { boot_id: brain.boot_id, ...report })

  /** Until it is answered. */
  const deliver = Effect.fnUntraced(function* (report: Report) {
    const older = old.get(report.server_id) ?? []
    const again = older[random?.below(older.length) ?? 0]
    if (again !== undefined && chance(mischief.overtaken)) {
      yield* Effect.forkIn(Effect.ignore(sendReport(again)), life)
    }
    const attempt = Effect.gen(function* () {
      const answer = yield* permits.withPermit(sendReport(report))
      if (answer.status === 404) yield* registerAgain
      if (answer.status !== 200) {
        return yield* new ServiceFailed({ message: `${report.type}: ${answer.status} ${answer.text}` })
      }
    })
    yield* Effect.retry(attempt, retries)
    old.set(report.server_id, [...older, report])
  })

  const work = Effect.fnUntraced(function* (server_id: string) {
    while (true) {
      const next = brain.unsent.find((report) => report.server_id === server_id)
      if (next === undefined) {
        // No pause between the look and this: whoever says something later begins anew.
        active.delete(server_id)
        return
      }
      yield* deliver(next)
      const at = brain.unsent.indexOf(next)
      if (at >= 0) brain.unsent.splice(at, 1)
    }
  })
  const wake = (server_id: string) => {
    if (active.has(server_id)) return
    active.add(server_id)
    Effect.runFork(Effect.forkIn(work(server_id), life))
  }
  const say = brain.say.bind(brain)
  brain.say = (server_id, body) => {
    say(server_id, body)
    const report = brain.unsent.at(-1)
    if (report !== undefined) said.set(server_id, [...(said.get(server_id) ?? []), ...brief(report)])
    wake(server_id)
  }
  // While nothing gets through, calls stay without an answer.
  brain.step = cable.await

  const beats = Effect.gen(function* () {
    yield* Effect.sleep(options.heartbeat ?? "10 seconds")
    const beat = { boot_id: brain.boot_id, load: 1, memory_used_bytes: 2, disk_used_bytes: 3 }
    const answer = yield* Effect.option(send("/internal/heartbeat", beat))
    if (answer._tag === "Some" && answer.value.status === 404) yield* registerAgain
  })

  /** Comes up as a process would, with what is on its disk. */
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
  yield* Scope.provide(start, life)

  const stop = Effect.suspend(() => Scope.close(life, Exit.void))

  return {
    id,
    /** What it has and what it can be told to do by itself: `move`, `crash`, `finishInstall`. */
    brain,
    url: () => url,
    registrations: () => registrations,
    /** What the answer to the last registration named: deleted, and not known. */
    toldToDelete: () => toldToDelete,
    unknown: () => unknown,
    /** Everything that it has ever said of a server, in order. */
    said: (server_id: string): ReadonlyArray<string> => said.get(server_id) ?? [],
    /** Nothing gets through any more, in either direction. */
    cut: cable.close,
    heal: cable.open,
    kill: stop,
    /** After {@link kill}: comes back, with another boot. */
    restart: Effect.gen(function* () {
      brain.boot += 1
      life = yield* Scope.fork(scope)
      // Whoever was at work went with the life before.
      active.clear()
      yield* Scope.provide(start, life)
    }),
    /** Sends a message of its own, past all mischief. */
    post: (path: string, body?: unknown) =>
      (addresses[0] ?? requestTo("", key))(
        "POST",
        `/api/nodes/${id}${path}`,
        body === undefined ? {} : { body }
      ),
    /** The control plane has heard everything. */
    quiet: () => brain.unsent.length === 0
  }
})
