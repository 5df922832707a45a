import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Latch } from "effect"
import { DaemonRefused } from "../../../src/api/Daemon.ts"
import { until } from "../../support/eventually.ts"
import { makeWorld, request, runWorld } from "../support/harness.ts"

const whole = ["status installing", "status offline", "status starting", "status running"]

describe("decisions, section 3: start once installed", () => {
  it.live("starts, and forgets that it was to", () =>
    Effect.gen(function* () {
      const { start } = yield* makeWorld()
      const { servers, becomes, events, settled, records } = yield* start()
      const { id } = yield* servers.create(request({ start: true }))
      yield* becomes(id, "running")
      yield* settled
      assert.deepStrictEqual(yield* events(id), whole)
      assert.isFalse((yield* records)[0]?.start_pending)
    }).pipe(runWorld)
  )

  it.live("does not start what could not be installed", () =>
    Effect.gen(function* () {
      const { daemon, start } = yield* makeWorld()
      daemon.installs = "failed"
      const { servers, becomes, settled } = yield* start()
      const { id } = yield* servers.create(request({ start: true }))
      yield* becomes(id, "offline")
      yield* settled
      assert.isFalse(daemon.calls.some((call) => call.startsWith("power")))
    }).pipe(runWorld)
  )

  it.live("starts also what its node seemed to have lost just then", () =>
    Effect.gen(function* () {
      const { daemon, start } = yield* makeWorld()
      daemon.fault("power", new DaemonRefused({ status: 500, detail: "busy", hint: "none" }))
      const { servers, becomes, plane } = yield* start()
      let isFirst = true
      daemon.step = Effect.suspend(() => {
        if (!isFirst || daemon.calls.at(-1)?.startsWith("power") !== true) return Effect.void
        isFirst = false
        return Effect.orDie(plane.register({ ...daemon.registration, servers: [] }))
      })
      const { id } = yield* servers.create(request({ start: true }))
      yield* becomes(id, "running")
      assert.isFalse(isFirst)
      assert.include(daemon.calls, `status ${id}`)
    }).pipe(runWorld)
  )

  it.live("gives up a start that the node refuses, at once or after some failures", () =>
    Effect.gen(function* () {
      for (const status of [409, 500] as const) {
        const { daemon, start } = yield* makeWorld()
        const refusal = new DaemonRefused({ status, detail: "no", hint: "" })
        daemon.fault("power", ...Array.from({ length: 100 }, () => refusal))
        const { servers, settled, becomes, records } = yield* start()
        const { id } = yield* servers.create(request({ start: true }))
        yield* becomes(id, "offline")
        yield* until(
          "the start is given up",
          Effect.map(records, (rows) => rows[0]?.start_pending === false)
        )
        yield* settled
        assert.strictEqual(
          daemon.calls.filter((call) => call.startsWith("power")).length,
          status === 409 ? 1 : 5
        )
      }
    }).pipe(runWorld)
  )
})

describe("node-protocol: installing goes on until the node has accepted it", () => {
  it.live("repeats what was lost on the way or back, and makes one server", () =>
    Effect.gen(function* () {
      const { daemon, start } = yield* makeWorld()
      daemon.fault("create", "request-lost", "answer-lost", "request-lost")
      daemon.fault("create", new DaemonRefused({ status: 500, detail: "busy", hint: "" }))
      const { servers, becomes, settled, events } = yield* start()
      const { id } = yield* servers.create(request())
      yield* becomes(id, "offline")
      yield* settled
      assert.deepStrictEqual(yield* events(id), whole.slice(0, 2))
      assert.strictEqual(daemon.instances.size, 1)
    }).pipe(runWorld)
  )

  it.live("what the node refuses for good is a failed installation that says why", () =>
    Effect.gen(function* () {
      const { daemon, start } = yield* makeWorld()
      daemon.fault("create", new DaemonRefused({ status: 422, detail: "mount not allowed: /srv", hint: "" }))
      const { servers, becomes, settled, events } = yield* start()
      const { id } = yield* servers.create(request({ start: true }))
      yield* becomes(id, "offline")
      yield* settled
      const install = yield* servers.install(id)
      assert.deepStrictEqual([install.phase, install.failure_reason], ["failed", "mount not allowed: /srv"])
      assert.deepStrictEqual(yield* events(id), whole.slice(0, 2))
    }).pipe(runWorld)
  )

  it.live(
    "what the node cannot carry out, for a full disk for one, is a failed installation after some attempts",
    () =>
      Effect.gen(function* () {
        const { daemon, start } = yield* makeWorld()
        const refusal = new DaemonRefused({ status: 500, detail: "disk full", hint: "" })
        daemon.fault("create", ...Array.from({ length: 5 }, () => refusal))
        const { servers, becomes, settled, events } = yield* start()
        const { id } = yield* servers.create(request({ start: true }))
        yield* becomes(id, "offline")
        yield* settled
        const install = yield* servers.install(id)
        assert.deepStrictEqual([install.phase, install.failure_reason], ["failed", "disk full"])
        assert.deepStrictEqual(yield* events(id), whole.slice(0, 2))
        yield* servers.reinstall(id)
        yield* until(
          "there is room, and it is installed",
          Effect.map(servers.install(id), ({ phase }) => phase === "ready")
        )
        yield* settled
      }).pipe(runWorld)
  )

  it.live("an answer that a report has overtaken does not undo it", () =>
    Effect.gen(function* () {
      const { daemon, start } = yield* makeWorld()
      daemon.installs = "manual"
      const first = yield* start()
      const { id } = yield* first.servers.create(request())
      yield* until(
        "the node has it",
        Effect.sync(() => daemon.instances.has(id))
      )
      yield* first.settled
      yield* first.stop
      // The second control plane asks again; the node's answer, "installing", stays on its way for long.
      const answered = Latch.makeUnsafe(false)
      let steps = 0
      daemon.step = Effect.suspend(() => {
        steps += 1
        return steps === 2 ? answered.await : Effect.void
      })
      const second = yield* start()
      yield* until(
        "the node has answered",
        Effect.sync(() => steps === 2)
      )
      daemon.finishInstall(id, "ready")
      yield* second.becomes(id, "offline")
      answered.openUnsafe()
      yield* second.settled
      assert.deepStrictEqual(yield* second.events(id), whole.slice(0, 2))
      assert.strictEqual((yield* second.records)[0]?.install.phase, "ready")
    }).pipe(runWorld)
  )

  it.live("waits for a node that is away, and goes on when it is back", () =>
    Effect.gen(function* () {
      const { nodes, daemon, start } = yield* makeWorld()
      const { servers, becomes, connect } = yield* start({ connect: false })
      yield* nodes.publish("n1", "connected")
      const { id } = yield* servers.create(request({ start: true }))
      yield* nodes.publish("n1", "lost")
      yield* becomes(id, "unknown")
      assert.strictEqual(daemon.instances.size, 0)
      yield* connect
      yield* becomes(id, "running")
    }).pipe(runWorld)
  )
})

describe("node-protocol: the control plane is killed at any moment", () => {
  it.live("what is unfinished goes on at the start, also where no node says anything", () =>
    Effect.gen(function* () {
      const { nodes, daemon, start } = yield* makeWorld()
      const first = yield* start({ connect: false })
      yield* nodes.publish("n1", "connected")
      const { id } = yield* first.servers.create(request())
      yield* first.stop
      const second = yield* start({ connect: false })
      yield* second.attach
      yield* until(
        "the node has it",
        Effect.sync(() => daemon.instances.has(id))
      )
    }).pipe(runWorld)
  )

  it.live("creation goes on after the restart from where it stood, and every change is told once", () =>
    Effect.gen(function* () {
      let steps = 0
      for (let killAt = 1; ; killAt++) {
        const { daemon, nodes, start } = yield* makeWorld()
        const reached = yield* Deferred.make<void>()
        let left = killAt
        daemon.step = Effect.suspend(() => {
          left -= 1
          return left === 0 ? Effect.andThen(Deferred.succeed(reached, undefined), Effect.never) : Effect.void
        })
        const first = yield* start()
        const { id } = yield* first.servers.create(request({ start: true }))
        const finished = first.becomes(id, "running").pipe(Effect.andThen(first.settled), Effect.as(true))
        const done = yield* Effect.raceFirst(finished, Effect.as(Deferred.await(reached), false))
        yield* first.stop
        daemon.step = Effect.void
        const second = yield* start()
        yield* second.becomes(id, "running")
        yield* second.settled
        assert.deepStrictEqual(yield* second.events(id), whole, `ended at step ${killAt}`)
        assert.deepStrictEqual([...nodes.held.keys()], [id])
        assert.isFalse((yield* second.records)[0]?.start_pending)
        yield* second.stop
        if (done) break
        steps = killAt
      }
      assert.isAtLeast(steps, 10)
    }).pipe(runWorld)
  )
})
