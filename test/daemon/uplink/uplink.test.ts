import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, FiberSet, Latch, Logger, References } from "effect"
import { TestClock } from "effect/testing"
import { NodeId } from "../../../src/contract/domain/Id.ts"
import type { Report } from "../../../src/contract/domain/NodeMessages.ts"
import type { ServerStatus } from "../../../src/contract/domain/ServerStatus.ts"
import {
  ControlPlane,
  type ControlPlaneError,
  ControlPlaneUnavailable,
  RegistrationRequired
} from "../../../src/contract/nodeApi/ControlPlaneApi.ts"
import type { InstanceFileOwner } from "../../../src/daemon/state/InstanceFile.ts"
import { newInstanceState, withReport } from "../../../src/daemon/state/InstanceState.ts"
import { sendReports } from "../../../src/daemon/uplink/ReportOutbox.ts"
import { makeUplink } from "../../../src/daemon/uplink/uplink.ts"
import { OnDemand } from "../../../src/shared/work/OnDemand.ts"
import { registration } from "../../support/samples.ts"
import { controlPlane, recorder, specOf } from "../support.ts"

/** A server whose state is in memory only. */
const serverFile = (id: string) => {
  let onReports = () => {}
  let state = newInstanceState(specOf({ id }))
  return {
    setOwner: (owner: InstanceFileOwner) => {
      onReports = owner.onReports
      if (state.reports.length > 0) onReports()
    },
    get: () => state,
    acknowledge: (sequence: number) =>
      Effect.sync(() => {
        state = { ...state, reports: state.reports.filter((report) => report.sequence > sequence) }
      }),
    setStatus: (status: ServerStatus) => {
      state = withReport(state, { type: "status", status, transient: false })
      onReports()
    }
  }
}

const away = new ControlPlaneUnavailable({ detail: "away" })
const refusesNode = new ControlPlaneUnavailable({ detail: "the key is not valid", refuses: "node" })
const refusesMessage = new ControlPlaneUnavailable({ detail: "not understood", refuses: "message" })
const load = { load: 0, memory_used_bytes: 0, disk_used_bytes: 0 }

/** A connection to a control plane that answers reports with `answer`. */
const linked = (answer: (report: Report) => Effect.Effect<void, ControlPlaneError>) =>
  Effect.gen(function* () {
    const notes = recorder()
    const received: Array<string> = []
    /** The numbers of reports in each message. */
    const messages: Array<number> = []
    const lines: Array<string> = []
    let registering = 0
    const base = yield* Effect.provide(ControlPlane, controlPlane(notes))
    const uplink = yield* makeUplink({
      controlPlane: {
        ...base,
        register: (it) =>
          Effect.suspend(() => {
            registering += 1
            return base.register(it)
          }),
        reports: (_, __, reports) =>
          Effect.suspend(() => {
            messages.push(reports.length)
            const failed = new Map<string, ControlPlaneError>()
            return Effect.forEach(reports, (report) => {
              const before = failed.get(report.server_id)
              if (before !== undefined) return Effect.succeed(before)
              return Effect.match(answer(report), {
                onFailure: (error) => {
                  failed.set(report.server_id, error)
                  return error
                },
                onSuccess: () => void received.push(`${report.server_id} ${report.sequence}`)
              })
            })
          })
      },
      registration: Effect.succeed(registration("n")),
      onRegistered: () => Effect.void
    })
    const logger = Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${message}`))
    const fork = yield* FiberSet.makeRuntime<never, void, never>()
    /** Sends the reports of a server, also later ones. */
    const send = (file: ReturnType<typeof serverFile>) =>
      Effect.sync(() => {
        const sender = new OnDemand()
        const sent = sendReports(file, uplink).pipe(
          Effect.provide(Logger.layer([logger])),
          Effect.provideService(References.MinimumLogLevel, "Info")
        )
        file.setOwner({
          onReports: () => sender.start(fork, () => file.get().reports.length > 0, sent),
          onWaiting: () => {}
        })
        return sender
      })
    return { attempts: () => registering, received, lines, messages, notes, send, uplink }
  })

describe("spec 9.2", () => {
  it.effect("a registration that is rate-limited is repeated after a second and logs nothing", () =>
    Effect.gen(function* () {
      const base = yield* Effect.provide(ControlPlane, controlPlane(recorder()))
      const tooSoon = new ControlPlaneUnavailable({ detail: "once a second", busy: true })
      let attempts = 0
      const uplink = yield* makeUplink({
        controlPlane: {
          ...base,
          register: (it) =>
            Effect.suspend(() => (++attempts === 1 ? Effect.fail(tooSoon) : base.register(it)))
        },
        registration: Effect.succeed(registration("n")),
        onRegistered: () => Effect.void
      })
      const fiber = yield* Effect.forkScoped(uplink.register)
      yield* TestClock.adjust("999 millis")
      assert.strictEqual(attempts, 1)
      yield* TestClock.adjust("1 millis")
      yield* Fiber.join(fiber)
      assert.strictEqual(attempts, 2)
    }).pipe(Effect.scoped)
  )
})

describe("spec 9.3: retried with backoff and jitter until answered", () => {
  it.effect("after an hour without the control plane, the retry comes at most 10 s later", () =>
    Effect.gen(function* () {
      let reachable = false
      const { received, send, uplink } = yield* linked(() => (reachable ? Effect.void : Effect.fail(away)))
      yield* uplink.register
      const file = serverFile("srv_a")
      file.setStatus("running")
      yield* send(file)
      yield* TestClock.adjust("1 hour")
      assert.deepStrictEqual(received, [])
      reachable = true
      yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(received, ["srv_a 1"])
      assert.deepStrictEqual(file.get().reports, [])
    })
  )

  it.effect("a successful call triggers the retry at once", () =>
    Effect.gen(function* () {
      let reachable = false
      const { received, notes, send, uplink } = yield* linked(() =>
        reachable ? Effect.void : Effect.fail(away)
      )
      yield* uplink.register
      const files = ["srv_a", "srv_b", "srv_c"].map(serverFile)
      for (const file of files) {
        file.setStatus("running")
        yield* send(file)
      }
      yield* TestClock.adjust("1 minute")
      notes.away = true
      assert.isFalse(yield* uplink.heartbeat(load))
      reachable = true
      notes.away = false
      assert.isTrue(yield* uplink.heartbeat(load))
      yield* TestClock.adjust("1 millis")
      assert.deepStrictEqual(received.toSorted(), ["srv_a 1", "srv_b 1", "srv_c 1"])
    })
  )

  it.effect(
    "reports that wait for a message are the next one, in order for each server; they never delay heartbeats",
    () =>
      Effect.gen(function* () {
        const gate = yield* Latch.make(false)
        let now = 0
        let most = 0
        const { messages, received, notes, send, uplink } = yield* linked(() =>
          Effect.gen(function* () {
            now += 1
            most = Math.max(most, now)
            yield* gate.await
            now -= 1
          })
        )
        yield* uplink.register
        const files = Array.from({ length: 100 }, (_, n) => serverFile(`srv_${n}`))
        for (const file of files) {
          for (const status of ["starting", "running", "stopping"] as const) file.setStatus(status)
          yield* send(file)
        }
        yield* TestClock.adjust("1 second")
        assert.isTrue(yield* uplink.heartbeat(load))
        assert.strictEqual(notes.heartbeats, 1)
        yield* gate.open
        yield* Effect.repeat(TestClock.adjust("1 second"), { times: 5 })
        assert.strictEqual(most, 1, "one message at a time")
        // At most 100 in a message, of whole servers.
        assert.deepStrictEqual(messages, [99, 99, 99, 3])
        assert.strictEqual(received.length, 300)
        for (const file of files) {
          const { id } = file.get().spec
          assert.deepStrictEqual(
            received.filter((it) => it.startsWith(`${id} `)),
            [`${id} 1`, `${id} 2`, `${id} 3`]
          )
        }
      })
  )

  it.effect("a rejected report delays no other server, and its own server for a bounded time", () =>
    Effect.gen(function* () {
      const { received, lines, notes, send, uplink } = yield* linked(({ sequence, server_id }) =>
        server_id === "srv_poisoned" && sequence === 1 ? Effect.fail(refusesMessage) : Effect.void
      )
      yield* uplink.register
      const files = ["srv_poisoned", "srv_sound"].map(serverFile)
      for (const file of files) {
        file.setStatus("starting")
        file.setStatus("running")
        yield* send(file)
      }
      yield* TestClock.adjust("20 seconds")
      assert.deepStrictEqual(received, ["srv_sound 1", "srv_sound 2"])
      assert.deepStrictEqual(lines, ["Warn report 1 is refused and will be retried: not understood"])
      yield* TestClock.adjust("3 minutes")
      assert.deepStrictEqual(received.slice(2), ["srv_poisoned 2"])
      assert.strictEqual(lines.length, 2)
      assert.match(lines[1] ?? "", /^Error .*report 1 permanently.*"status":"starting"/)
      // The current status of the server is reported again.
      assert.strictEqual(notes.registrations.length, 2)
    })
  )

  it.effect("a defect at the reports of one server stops those of no other", () =>
    Effect.gen(function* () {
      const { received, send, uplink } = yield* linked(({ server_id }) =>
        server_id === "srv_bad" ? Effect.die("a defect") : Effect.void
      )
      yield* uplink.register
      for (const id of ["srv_first", "srv_bad", "srv_sound"]) {
        const file = serverFile(id)
        file.setStatus("running")
        yield* send(file)
      }
      yield* TestClock.adjust("1 millis")
      assert.deepStrictEqual(new Set(received), new Set(["srv_first 1", "srv_sound 1"]))
    })
  )

  it.effect("after `register first` the node registers once, then sends all reports", () =>
    Effect.gen(function* () {
      const required = new RegistrationRequired({ node_id: NodeId.make("n") })
      let times = () => 0
      const { attempts, received, send, uplink } = yield* linked(() =>
        Effect.suspend(() => (times() > 1 ? Effect.void : Effect.fail(required)))
      )
      times = attempts
      yield* uplink.register
      for (let n = 0; n < 50; n++) {
        const file = serverFile(`srv_${n}`)
        file.setStatus("running")
        yield* send(file)
      }
      yield* TestClock.adjust("1 second")
      assert.strictEqual(received.length, 50)
      assert.strictEqual(attempts(), 2)
    })
  )

  it.effect("a registration survives the removal of the server that caused it", () =>
    Effect.gen(function* () {
      const required = new RegistrationRequired({ node_id: NodeId.make("n") })
      let times = () => 0
      const { attempts, received, notes, send, uplink } = yield* linked(() =>
        Effect.suspend(() => (times() > 1 ? Effect.void : Effect.fail(required)))
      )
      times = attempts
      yield* uplink.register
      notes.away = true
      const [gone, stays] = [serverFile("srv_gone"), serverFile("srv_stays")]
      gone.setStatus("running")
      const sender = yield* send(gone)
      yield* TestClock.adjust("1 millis")
      assert.strictEqual(attempts(), 2)
      yield* sender.stop
      stays.setStatus("running")
      yield* send(stays)
      notes.away = false
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(received, ["srv_stays 1"])
    })
  )

  it.effect("a node with a refused key retries at most every 10 s and sends nothing else", () =>
    Effect.gen(function* () {
      let reports = 0
      let revoked = false
      const { attempts, received, notes, send, uplink } = yield* linked(() => {
        reports += 1
        return revoked ? Effect.fail(refusesNode) : Effect.void
      })
      yield* uplink.register
      revoked = true
      notes.away = true
      for (const id of ["srv_a", "srv_b"]) {
        const file = serverFile(id)
        file.setStatus("running")
        yield* send(file)
      }
      yield* TestClock.adjust("5 minutes")
      assert.isAtLeast(attempts(), 25)
      assert.isAtMost(attempts(), 80)
      assert.isAtMost(reports, 2)
      assert.deepStrictEqual(received, [])
      revoked = false
      notes.away = false
      yield* TestClock.adjust("10100 millis")
      assert.deepStrictEqual(received.toSorted(), ["srv_a 1", "srv_b 1"])
    })
  )
})
