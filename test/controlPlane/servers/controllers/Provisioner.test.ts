import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Latch } from "effect"
import { NodeId } from "../../../../src/contract/domain/Id.ts"
import { DaemonRefused } from "../../../../src/contract/nodeApi/Daemon.ts"
import { until } from "../../../support/eventually.ts"
import { makeHarness, request, runHarness } from "../support/harness.ts"

const whole = ["status installing", "status offline", "status starting", "status running"]

describe("spec 3.9: start once installed", () => {
  it.live("an installed server is started, and the request to start is cleared", () =>
    Effect.gen(function* () {
      const { start } = yield* makeHarness()
      const { servers, becomes, events, settled, records } = yield* start()
      const { id } = yield* servers.create(request({ start: true }))
      yield* becomes(id, "running")
      yield* settled
      assert.deepStrictEqual(yield* events(id), whole)
      assert.isFalse((yield* records)[0]?.start_pending)
    }).pipe(runHarness)
  )

  it.live("a server whose installation failed is not started", () =>
    Effect.gen(function* () {
      const { daemon, start } = yield* makeHarness()
      daemon.installs = "failed"
      const { servers, becomes, settled } = yield* start()
      const { id } = yield* servers.create(request({ start: true }))
      yield* becomes(id, "offline")
      yield* settled
      assert.isFalse(daemon.calls.some((call) => call.startsWith("power")))
    }).pipe(runHarness)
  )

  it.live("a server that its node seemed to have lost is started too", () =>
    Effect.gen(function* () {
      const { daemon, start } = yield* makeHarness()
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
    }).pipe(runHarness)
  )

  it.live("a start that the node refuses is given up, at once or after some failures", () =>
    Effect.gen(function* () {
      for (const status of [409, 500] as const) {
        const { daemon, start } = yield* makeHarness()
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
    }).pipe(runHarness)
  )
})

describe("spec 9.4: an installation is retried until the node has accepted it", () => {
  it.live("a request or response that is lost is retried, and one server is installed", () =>
    Effect.gen(function* () {
      const { daemon, start } = yield* makeHarness()
      daemon.fault("create", "request-lost", "answer-lost", "request-lost")
      daemon.fault("create", new DaemonRefused({ status: 500, detail: "busy", hint: "" }))
      const { servers, becomes, settled, events } = yield* start()
      const { id } = yield* servers.create(request())
      yield* becomes(id, "offline")
      yield* settled
      assert.deepStrictEqual(yield* events(id), whole.slice(0, 2))
      assert.strictEqual(daemon.instances.size, 1)
    }).pipe(runHarness)
  )

  it.live("a permanent refusal of the node is a failed installation with a reason", () =>
    Effect.gen(function* () {
      const { daemon, start } = yield* makeHarness()
      daemon.fault("create", new DaemonRefused({ status: 422, detail: "mount not allowed: /srv", hint: "" }))
      const { servers, becomes, settled, events } = yield* start()
      const { id } = yield* servers.create(request({ start: true }))
      yield* becomes(id, "offline")
      yield* settled
      const install = yield* servers.install(id)
      assert.deepStrictEqual([install.phase, install.failure_reason], ["failed", "mount not allowed: /srv"])
      assert.strictEqual(install.steps?.at(-1)?.name, "instance", "the last step is the one that failed")
      assert.deepStrictEqual(yield* events(id), whole.slice(0, 2))
    }).pipe(runHarness)
  )

  it.live("a failure of the node, such as a full disk, is a failed installation after some attempts", () =>
    Effect.gen(function* () {
      const { daemon, start } = yield* makeHarness()
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
    }).pipe(runHarness)
  )

  it.live("a response older than a report does not undo the report", () =>
    Effect.gen(function* () {
      const { daemon, start } = yield* makeHarness()
      daemon.installs = "manual"
      const first = yield* start()
      const { id } = yield* first.servers.create(request())
      yield* until(
        "the node has it",
        Effect.sync(() => daemon.instances.has(id))
      )
      yield* first.settled
      yield* first.stop
      // The second control plane asks again; the node's response, "installing", is delayed.
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
    }).pipe(runHarness)
  )

  it.live("the installation waits for a node that is away and continues on its return", () =>
    Effect.gen(function* () {
      const { nodes, daemon, start } = yield* makeHarness()
      const { servers, becomes, connect } = yield* start({ connect: false })
      yield* nodes.publish(NodeId.make("n1"), "connected")
      const { id } = yield* servers.create(request({ start: true }))
      yield* nodes.publish(NodeId.make("n1"), "lost")
      yield* becomes(id, "unknown")
      assert.strictEqual(daemon.instances.size, 0)
      yield* connect
      yield* becomes(id, "running")
    }).pipe(runHarness)
  )
})

describe("spec 9.6: control plane killed at any moment", () => {
  it.live("unfinished work continues at the start, also if no node reports anything", () =>
    Effect.gen(function* () {
      const { nodes, daemon, start } = yield* makeHarness()
      const first = yield* start({ connect: false })
      yield* nodes.publish(NodeId.make("n1"), "connected")
      const { id } = yield* first.servers.create(request())
      yield* first.stop
      const second = yield* start({ connect: false })
      yield* second.attach
      yield* until(
        "the node has it",
        Effect.sync(() => daemon.instances.has(id))
      )
    }).pipe(runHarness)
  )

  it.live("an interrupted creation continues after the restart, and every change is published once", () =>
    Effect.gen(function* () {
      let steps = 0
      for (let killAt = 1; ; killAt++) {
        const { daemon, nodes, start } = yield* makeHarness()
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
      assert.isAtLeast(steps, 8)
    }).pipe(runHarness)
  )
})
