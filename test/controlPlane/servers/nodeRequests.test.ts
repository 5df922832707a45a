import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Stream } from "effect"
import { ServerId } from "../../../src/contract/domain/Id.ts"
import { DaemonRefused } from "../../../src/contract/nodeApi/Daemon.ts"
import { until } from "../../support/eventually.ts"
import { makeHarness, request, runHarness } from "./support/harness.ts"

const refused = (status: 404 | 409 | 422 | 500) =>
  new DaemonRefused({ status, detail: "the daemon says no", hint: "ask it why" })

/** A test setup with one installed server. */
const makeInstalled = Effect.fnUntraced(function* (blueprint_id = "survival") {
  const harness = yield* makeHarness()
  const plane = yield* harness.start()
  const { id } = yield* plane.servers.create(request({ blueprint_id }))
  yield* plane.becomes(id, "offline")
  yield* plane.settled
  return { ...harness, ...plane, id }
})

const codeOf = <A, R>(effect: Effect.Effect<A, { readonly code: string }, R>) =>
  Effect.map(Effect.flip(effect), (error) => error.code)

const unknown = ServerId.make("srv_01ARZ3NDEKTSV4RRFFQ69G5FAV")

describe("spec 3: management routes", () => {
  it.live("an unknown id is 404 on every route", () =>
    Effect.gen(function* () {
      const { start } = yield* makeHarness()
      const { servers } = yield* start()
      const lines = { page: 1, per_page: 100 }
      const calls = [
        servers.remove(unknown, { force: true }),
        servers.power(unknown, "start", 30),
        servers.status(unknown),
        servers.stats(unknown, { update_disk_usage: false }),
        servers.logs(unknown, lines),
        servers.commands(unknown, ["say hi"]),
        servers.reset(unknown),
        servers.reinstall(unknown),
        servers.install(unknown),
        servers.installLogs(unknown, lines),
        Effect.scoped(servers.console(unknown))
      ]
      const codes = yield* Effect.forEach(calls, (call) => codeOf<unknown, never>(call))
      assert.deepStrictEqual([...new Set(codes)], ["404"])
    }).pipe(runHarness)
  )

  it.live("a power action sets no status; reports do", () =>
    Effect.gen(function* () {
      const { id, servers, daemon, becomes, events } = yield* makeInstalled()
      daemon.gate.closeUnsafe()
      const starting = yield* Effect.forkChild(servers.power(id, "start", 30))
      yield* until(
        "the node has accepted it",
        Effect.sync(() => daemon.unsent.length === 2)
      )
      assert.strictEqual(yield* servers.status(id), "offline")
      daemon.gate.openUnsafe()
      yield* Fiber.join(starting)
      assert.strictEqual(yield* servers.status(id), "running", "an accepted action shows at once")
      yield* servers.power(id, "start", 30)
      yield* servers.power(id, "pause", 30)
      yield* becomes(id, "paused")
      yield* servers.power(id, "unpause", 30)
      yield* becomes(id, "running")
      yield* servers.power(id, "restart", 30)
      yield* until(
        "it has started twice",
        Effect.map(events(), (all) => all.filter((event) => event === "status starting").length === 2)
      )
      yield* becomes(id, "running")
      yield* servers.power(id, "stop", 30)
      yield* becomes(id, "offline")
      assert.deepStrictEqual(daemon.calls.filter((call) => call.startsWith("power")).length, 6)
      assert.deepStrictEqual(yield* events(id), [
        "status installing",
        "status offline",
        "status starting",
        "status running",
        "status paused",
        "status running",
        "status stopping",
        "status offline",
        "status starting",
        "status running",
        "status stopping",
        "status offline"
      ])
    }).pipe(runHarness)
  )

  it.live("start is 409 after a failed installation until a reinstall succeeds", () =>
    Effect.gen(function* () {
      const { daemon, start } = yield* makeHarness()
      daemon.installs = "manual"
      const { servers, becomes, settled } = yield* start()
      const { id } = yield* servers.create(request())
      yield* settled
      daemon.finishInstall(id, "failed")
      yield* becomes(id, "offline")
      yield* settled
      const error = yield* Effect.flip(servers.power(id, "start", 30))
      assert.deepStrictEqual([error.code, error.detail], ["409", "install failed: exit code 1"])
      assert.strictEqual((yield* servers.install(id)).phase, "failed")
      daemon.installs = "ready"
      yield* servers.reinstall(id)
      yield* becomes(id, "offline")
      yield* settled
      assert.strictEqual((yield* servers.install(id)).phase, "ready")
      yield* servers.power(id, "start", 30)
      yield* becomes(id, "running")
    }).pipe(runHarness)
  )

  it.live(
    "the state is checked before the node: 409 although the node is away, 503 if the state allows the action",
    () =>
      Effect.gen(function* () {
        const { id, servers, nodes, daemon, becomes } = yield* makeInstalled()
        daemon.fault("power", "request-lost")
        assert.strictEqual(yield* codeOf(servers.power(id, "start", 30)), "503")
        daemon.fault("commands", "request-lost")
        assert.strictEqual(yield* codeOf(servers.commands(id, ["say hi"])), "409")
        assert.strictEqual(yield* codeOf(servers.power(id, "pause", 30)), "409")
        yield* nodes.publish("n1", "lost")
        yield* becomes(id, "unknown")
        assert.strictEqual(yield* codeOf(servers.power(id, "start", 30)), "503")
        assert.strictEqual(yield* codeOf(servers.commands(id, ["say hi"])), "503")
        assert.strictEqual(yield* codeOf(servers.reinstall(id)), "503")
        assert.strictEqual(yield* codeOf(servers.reset(id)), "503")
      }).pipe(runHarness)
  )

  it.live("a refusal of the node keeps its reason: 409 and 422; a failure of the node is 502", () =>
    Effect.gen(function* () {
      const { id, servers, daemon } = yield* makeInstalled()
      for (const [status, code] of [
        [409, "409"],
        [422, "422"],
        [500, "502"]
      ] as const) {
        daemon.fault("power", refused(status))
        const error = yield* Effect.flip(servers.power(id, "start", 30))
        assert.deepStrictEqual([error.code, error.hint], [code, "ask it why"])
        assert.include(error.detail, "the daemon says no")
      }
    }).pipe(runHarness)
  )

  it.live("a saved server that is missing on its node is 502 and installed again", () =>
    Effect.gen(function* () {
      const { id, servers, daemon, events, settled } = yield* makeInstalled()
      daemon.instances.delete(id)
      assert.strictEqual(yield* codeOf(servers.power(id, "start", 30)), "502")
      yield* until(
        "the node has it again",
        Effect.sync(() => daemon.instances.has(id))
      )
      yield* settled
      assert.deepStrictEqual(yield* events(id), [
        "status installing",
        "status offline",
        "status installing",
        "status offline"
      ])
    }).pipe(runHarness)
  )

  it.live("a server that is not saved and is missing on its node is 502 and deleted", () =>
    Effect.gen(function* () {
      const { id, servers, daemon, nodes, isGone, events } = yield* makeInstalled("lobby")
      daemon.instances.delete(id)
      assert.strictEqual(yield* codeOf(servers.stats(id, { update_disk_usage: false })), "502")
      yield* until("the record is gone", isGone(id))
      assert.deepStrictEqual(yield* events(id), ["status installing", "status offline", "deleted"])
      assert.strictEqual(nodes.held.size, 0)
    }).pipe(runHarness)
  )

  it.live("a command requires a process", () =>
    Effect.gen(function* () {
      const { id, servers, becomes, daemon } = yield* makeInstalled()
      assert.strictEqual(yield* codeOf(servers.commands(id, ["say hi"])), "409")
      yield* servers.power(id, "start", 30)
      yield* becomes(id, "running")
      yield* servers.commands(id, ["say hi"])
      assert.include(daemon.calls, `commands ${id}`)
    }).pipe(runHarness)
  )

  it.live("reinstall requires an offline server; a refusal leaves the server unchanged", () =>
    Effect.gen(function* () {
      const { id, servers, becomes, settled, daemon, records, events } = yield* makeInstalled()
      const unchanged = Effect.map(records, (rows) => rows.map(({ updated_at: _, ...row }) => row))
      const before = yield* unchanged
      for (const fault of ["request-lost", refused(409)] as const) {
        daemon.fault("reinstall", fault)
        yield* codeOf(servers.reinstall(id))
        yield* settled
        assert.deepStrictEqual(yield* unchanged, before)
      }
      yield* servers.power(id, "start", 30)
      yield* becomes(id, "running")
      assert.strictEqual(yield* codeOf(servers.reinstall(id)), "409")
      yield* servers.power(id, "stop", 30)
      yield* becomes(id, "offline")
      yield* settled
      yield* servers.reinstall(id)
      yield* settled
      yield* becomes(id, "offline")
      assert.deepStrictEqual((yield* events(id)).slice(-3), [
        "status offline",
        "status installing",
        "status offline"
      ])
    }).pipe(runHarness)
  )

  it.live("a reinstall that the node refuses because the server has just started leaves it installed", () =>
    Effect.gen(function* () {
      const { becomes, daemon, id, servers, settled } = yield* makeInstalled()
      daemon.gate.closeUnsafe()
      yield* Effect.forkChild(servers.power(id, "start", 30))
      yield* until(
        "the node has started it",
        Effect.sync(() => daemon.unsent.length === 2)
      )
      // The report of the start arrives between the reinstallation of the record and the refusal.
      let isFirst = true
      daemon.step = Effect.suspend(() => {
        if (!isFirst) return Effect.void
        isFirst = false
        daemon.gate.openUnsafe()
        return Effect.orDie(becomes(id, "running"))
      })
      assert.strictEqual(yield* codeOf(servers.reinstall(id)), "409")
      yield* settled
      assert.strictEqual((yield* servers.install(id)).phase, "ready")
      assert.strictEqual(yield* servers.status(id), "running")
    }).pipe(runHarness)
  )

  it.live("reset is 409 during an installation", () =>
    Effect.gen(function* () {
      const { daemon, start } = yield* makeHarness()
      daemon.installs = "manual"
      const { servers, settled, becomes } = yield* start()
      const { id } = yield* servers.create(request())
      yield* settled
      assert.strictEqual(yield* codeOf(servers.reset(id)), "409")
      daemon.finishInstall(id, "ready")
      yield* becomes(id, "offline")
      yield* servers.reset(id)
      assert.include(daemon.calls, `reset ${id}`)
    }).pipe(runHarness)
  )

  it.live(
    "log lines, stats and the console come from the node; before the installation there are no lines",
    () =>
      Effect.gen(function* () {
        const { id, servers, daemon } = yield* makeInstalled()
        const lines = { page: 1, per_page: 100 }
        assert.deepStrictEqual((yield* servers.logs(id, lines)).items, ["line"])
        assert.deepStrictEqual((yield* servers.installLogs(id, lines)).items, ["installed"])
        assert.strictEqual((yield* servers.stats(id, { update_disk_usage: true })).state, "offline")
        const console = yield* servers.console(id)
        assert.deepStrictEqual([...(yield* Stream.runCollect(console))], ["line"])
        daemon.fault("create", refused(500), refused(500), refused(500))
        const fresh = yield* servers.create(request())
        assert.deepStrictEqual(yield* servers.logs(fresh.id, lines), { items: [], total: 0 })
        assert.strictEqual((yield* servers.install(fresh.id)).phase, "pending")
      }).pipe(runHarness)
  )
})
