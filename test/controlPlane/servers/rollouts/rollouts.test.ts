import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import type { ServerDefinition } from "../../../../src/contract/domain/ServerDefinition.ts"
import { DaemonRefused } from "../../../../src/contract/nodeApi/Daemon.ts"
import { until } from "../../../support/eventually.ts"
import { definition } from "../../../support/samples.ts"
import { type makeHarness, request, runHarness } from "../support/harness.ts"
import { is, makeFleet, over, type Plane, reaches, tableOf, versionOn } from "../support/rollouts.ts"

const redefine = (plane: Pick<Plane, "lifecycle">, id: string, changed: ServerDefinition) =>
  plane.lifecycle.redefine(id, () => Effect.succeed({ definition: changed }))

describe("spec 3.13: the servers", () => {
  it.live(
    "a server that is up is restarted, one that is offline stays offline, one that is not saved stays",
    () =>
      Effect.gen(function* () {
        const fleet = yield* makeFleet({ up: 2, servers: 3 })
        fleet.definitions.lobby = definition({ blueprint_id: "lobby", save: false, version: "1" })
        const { id: passing } = yield* fleet.servers.create(request({ blueprint_id: "lobby", start: true }))
        yield* fleet.becomes(passing, "running")
        fleet.definitions.lobby = definition({ blueprint_id: "lobby", save: false, version: "2" })
        const ids = [...fleet.ids, passing]
        const { id } = yield* fleet.rollouts.create(over(ids))
        const done = yield* is(fleet, id, "done")
        assert.deepStrictEqual([done.total, done.done, done.failed], [4, 4, []])
        assert.deepStrictEqual(yield* tableOf(fleet, ids), [
          "2 running",
          "2 running",
          "2 offline",
          "2 running"
        ])
        for (const server of ids) assert.strictEqual(versionOn(fleet, server), "2")
        const restarts = fleet.daemon.calls.filter((call) => call.startsWith("power"))
        // Three starts after the installation, three restarts.
        assert.strictEqual(restarts.length, 6)
        assert.notInclude(yield* fleet.events(passing), "deleted")
      }).pipe(runHarness)
  )

  it.live("when_stopped: a server that is up keeps its process, and is done once it has stopped", () =>
    Effect.gen(function* () {
      const fleet = yield* makeFleet({ up: 3, servers: 4 })
      fleet.definitions.survival = definition({ version: "1", env: { SEASON: "2" } })
      const [first = "", ...others] = fleet.ids
      const { id } = yield* fleet.rollouts.create(
        over(fleet.ids, { restart: "when_stopped", max_parallel: 1 })
      )
      const waits = yield* reaches(fleet, id, ({ done, waiting }) => done === 1 && waiting === 3)
      assert.deepStrictEqual([waits.state, waits.under_way], ["running", 0])
      yield* fleet.servers.power(first, "stop")
      yield* reaches(fleet, id, ({ done }) => done === 2)
      const starts = () => fleet.daemon.calls.filter((call) => call.startsWith("power")).length
      const before = starts()
      for (const server of others.slice(0, 2)) yield* fleet.servers.power(server, "restart")
      yield* is(fleet, id, "done")
      yield* fleet.settled
      assert.strictEqual(starts(), before + 2)
      assert.deepStrictEqual(yield* tableOf(fleet, fleet.ids), [
        "1 offline",
        "1 running",
        "1 running",
        "1 offline"
      ])
      for (const { next, spec } of fleet.daemon.instances.values()) {
        assert.deepStrictEqual((next ?? spec).definition.env, { SEASON: "2" })
      }
    }).pipe(runHarness)
  )

  it.live("notify: each running server gets the line before its restart, once", () =>
    Effect.gen(function* () {
      const fleet = yield* makeFleet({ up: 2, servers: 3 })
      const before = fleet.daemon.calls.length
      const { id } = yield* fleet.rollouts.create(
        over(fleet.ids, { max_parallel: 1, notify: "say bye", notify_seconds: 0 })
      )
      yield* is(fleet, id, "done")
      const calls = fleet.daemon.calls.slice(before).filter((call) => /^(power|commands)/.test(call))
      assert.deepStrictEqual(
        calls.map((call) => call.split(" ")[0]),
        ["commands", "power", "commands", "power"]
      )
    }).pipe(runHarness)
  )

  it.live("canary: the rollout pauses after n servers until it is resumed", () =>
    Effect.gen(function* () {
      const fleet = yield* makeFleet({ up: 4 })
      const { id } = yield* fleet.rollouts.create(over(fleet.ids, { canary: 1 }))
      const paused = yield* is(fleet, id, "paused")
      assert.deepStrictEqual(
        [paused.done, paused.reason],
        [1, "the canary is done: resume the rollout to continue"]
      )
      assert.deepStrictEqual(yield* tableOf(fleet, fleet.ids), [
        "2 running",
        "1 running",
        "1 running",
        "1 running"
      ])
      assert.strictEqual((yield* fleet.rollouts.resume(id)).reason, undefined)
      assert.strictEqual((yield* is(fleet, id, "done")).done, 4)
    }).pipe(runHarness)
  )

  it.live("continue: the other servers are changed, and the rollout has failed in the end", () =>
    Effect.gen(function* () {
      const fleet = yield* makeFleet({ up: 3 })
      fleet.daemon.fault("power", new DaemonRefused({ status: 422, detail: "no java", hint: "Install it." }))
      const { id } = yield* fleet.rollouts.create(
        over(fleet.ids, { on_failure: "continue", max_parallel: 1 })
      )
      const failed = yield* is(fleet, id, "failed")
      assert.deepStrictEqual(
        [failed.done, failed.failed.map(({ reason, server_id }) => `${server_id}: ${reason}`)],
        [2, [`${fleet.ids[0]}: cannot be started: no java`]]
      )
    }).pipe(runHarness)
  )

  it.live("a definition that does not fit the server is a failure; resume tries it again, last", () =>
    Effect.gen(function* () {
      const fleet = yield* makeFleet({ up: 2 })
      fleet.definitions.survival = definition({ version: "2", ports: 2 })
      const { id } = yield* fleet.rollouts.create(over(fleet.ids, { max_parallel: 1 }))
      const paused = yield* is(fleet, id, "paused")
      const [first, second] = fleet.ids
      assert.deepStrictEqual(
        paused.failed.map(({ server_id }) => String(server_id)),
        [first]
      )
      assert.match(paused.failed[0]?.reason ?? "", /^the definition has 2 ports, server \w+ has 1$/)
      yield* fleet.rollouts.resume(id)
      const again = yield* reaches(fleet, id, ({ failed }) => failed[0]?.server_id === second)
      assert.strictEqual(again.state, "paused")
      assert.deepStrictEqual(yield* tableOf(fleet, fleet.ids), ["1 running", "1 running"])
    }).pipe(runHarness)
  )

  it.live("a server whose node is away for too long has failed; it is changed when the node is back", () =>
    Effect.gen(function* () {
      const fleet = yield* makeFleet({ up: 2 }, { rolloutNodeTimeout: "1 second" })
      yield* fleet.nodes.publish("n1", "lost")
      yield* fleet.becomes(fleet.ids[0] ?? "", "unknown")
      const { id } = yield* fleet.rollouts.create(over(fleet.ids))
      const paused = yield* is(fleet, id, "paused")
      assert.strictEqual(paused.failed[0]?.reason, "node n1 is not connected")
      yield* fleet.nodes.publish("n1", "connected")
      yield* fleet.becomes(fleet.ids[0] ?? "", "running")
      yield* reaches(fleet, id, ({ under_way }) => under_way === 0)
      yield* fleet.rollouts.resume(id)
      yield* is(fleet, id, "done")
      assert.deepStrictEqual(yield* tableOf(fleet, fleet.ids), ["2 running", "2 running"])
    }).pipe(runHarness)
  )
})

describe("spec 3.13: other changes of the servers", () => {
  /** A rollout of one server at a time, the first of which does not come up: its reports wait. */
  const makeHeld = Effect.fnUntraced(function* (options: Parameters<typeof makeHarness>[0] = {}) {
    const fleet = yield* makeFleet({ up: 3 }, options)
    yield* fleet.daemon.gate.close
    const { id } = yield* fleet.rollouts.create(over(fleet.ids, { max_parallel: 1 }))
    yield* until("the first server is restarted", () =>
      fleet.daemon.calls.some((call) => call === `power ${fleet.ids[0]}` && fleet.daemon.unsent.length > 0)
    )
    return { ...fleet, rollout: id }
  })

  it.live("a stop by a caller is kept, and is no failure", () =>
    Effect.gen(function* () {
      const fleet = yield* makeHeld()
      yield* fleet.servers.power(fleet.ids[0] ?? "", "stop")
      yield* fleet.daemon.gate.open
      const done = yield* is(fleet, fleet.rollout, "done")
      assert.deepStrictEqual(done.failed, [])
      yield* fleet.settled
      assert.deepStrictEqual(yield* tableOf(fleet, fleet.ids), ["2 offline", "2 running", "2 running"])
    }).pipe(runHarness)
  )

  it.live("a deleted server is done, also one that is under way", () =>
    Effect.gen(function* () {
      const fleet = yield* makeHeld()
      for (const id of fleet.ids.slice(0, 2)) yield* fleet.servers.remove(id, { force: false })
      yield* fleet.daemon.gate.open
      const done = yield* is(fleet, fleet.rollout, "done")
      assert.deepStrictEqual([done.total, done.done, done.failed], [3, 3, []])
      assert.deepStrictEqual(yield* tableOf(fleet, fleet.ids), ["gone", "gone", "2 running"])
    }).pipe(runHarness)
  )

  it.live("a definition that a caller changes during the rollout stays", () =>
    Effect.gen(function* () {
      const fleet = yield* makeHeld()
      yield* redefine(fleet, fleet.ids[1] ?? "", definition({ version: "3" }))
      yield* fleet.daemon.gate.open
      yield* is(fleet, fleet.rollout, "done")
      assert.deepStrictEqual(yield* tableOf(fleet, fleet.ids), ["2 running", "3 running", "2 running"])
    }).pipe(runHarness)
  )

  it.live("a rollout and a drain of the node: every server arrives with the new definition", () =>
    Effect.gen(function* () {
      const fleet = yield* makeHeld({ otherPorts: 100 })
      yield* fleet.drainWithMove("n1")
      yield* fleet.daemon.gate.open
      const done = yield* is(fleet, fleet.rollout, "done")
      assert.deepStrictEqual(done.failed, [])
      yield* until(
        "the node is empty",
        Effect.map(fleet.moves.progress("n1"), (progress) => progress?.left === 0)
      )
      for (const id of fleet.ids) yield* fleet.becomes(id, "running")
      yield* fleet.settled
      assert.deepStrictEqual(
        yield* tableOf(fleet, fleet.ids),
        Array.from(fleet.ids, () => "2 running")
      )
      for (const { spec } of fleet.other.instances.values()) assert.strictEqual(spec.definition.version, "2")
    }).pipe(runHarness)
  )

  it.live("abort: the servers keep what they have, and are free for the next rollout", () =>
    Effect.gen(function* () {
      const fleet = yield* makeHeld()
      assert.strictEqual((yield* fleet.rollouts.abort(fleet.rollout)).state, "aborted")
      yield* fleet.daemon.gate.open
      yield* fleet.settled
      assert.deepStrictEqual(yield* tableOf(fleet, fleet.ids), ["2 running", "1 running", "1 running"])
      const { id } = yield* fleet.rollouts.create(over(fleet.ids))
      yield* is(fleet, id, "done")
    }).pipe(runHarness)
  )
})
