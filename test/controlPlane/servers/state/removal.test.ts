import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Latch } from "effect"
import { NodeId } from "../../../../src/contract/domain/Id.ts"
import { DaemonRefused } from "../../../../src/contract/nodeApi/Daemon.ts"
import { until } from "../../../support/eventually.ts"
import { makeHarness, request, runHarness } from "../support/harness.ts"

const makeInstalled = Effect.fnUntraced(function* (blueprint_id = "survival", keepDeleted = 0) {
  const harness = yield* makeHarness({ keepDeleted })
  const plane = yield* harness.start()
  const { id } = yield* plane.servers.create(request({ blueprint_id }))
  yield* plane.becomes(id, "offline")
  yield* plane.settled
  return { ...harness, ...plane, id }
})

describe("spec 3.17: DELETE /api/servers/:server", () => {
  it.live("a deletion removes the files, the record and the ports, and publishes one deleted event", () =>
    Effect.gen(function* () {
      const { id, servers, daemon, nodes, events, records } = yield* makeInstalled()
      yield* servers.remove(id, { force: false })
      assert.strictEqual(daemon.instances.size, 0)
      assert.strictEqual(nodes.held.size, 0)
      assert.deepStrictEqual(yield* records, [])
      assert.deepStrictEqual(yield* events(id), ["status installing", "status offline", "deleted"])
      assert.strictEqual((yield* Effect.flip(servers.remove(id, { force: false }))).code, "404")
    }).pipe(runHarness)
  )

  it.live("without force, a node that is away is 503, a failing node is 502, and nothing changes", () =>
    Effect.gen(function* () {
      const { id, servers, daemon, nodes, records } = yield* makeInstalled()
      daemon.fault("remove", "request-lost", new DaemonRefused({ status: 500, detail: "disk", hint: "" }))
      const away = yield* Effect.flip(servers.remove(id, { force: false }))
      assert.strictEqual(away.code, "503")
      assert.match(
        away.hint,
        /\. Or send force=true: the record is deleted now, the files once the node is back\.$/
      )
      assert.strictEqual((yield* Effect.flip(servers.remove(id, { force: false }))).code, "502")
      assert.strictEqual((yield* records).length, 1)
      assert.strictEqual(nodes.held.size, 1)
    }).pipe(runHarness)
  )

  it.live(
    "with force, the record is deleted at once, and the deletion on the node is retried until it succeeds",
    () =>
      Effect.gen(function* () {
        const { id, servers, daemon, nodes, events } = yield* makeInstalled()
        daemon.fault("remove", "request-lost", "request-lost", "request-lost")
        yield* servers.remove(id, { force: true })
        assert.strictEqual(nodes.held.size, 0)
        assert.strictEqual((yield* events(id)).at(-1), "deleted")
        yield* until(
          "the node has removed it",
          Effect.sync(() => daemon.instances.size === 0)
        )
      }).pipe(runHarness)
  )

  it.live(
    "an instance left by a forced deletion is deleted when its node registers, also after a restart",
    () =>
      Effect.gen(function* () {
        const { id, servers, daemon, stop, start } = yield* makeInstalled()
        daemon.fault("remove", ...Array.from({ length: 100_000 }, () => "request-lost" as const))
        yield* servers.remove(id, { force: true })
        yield* stop
        assert.isTrue(daemon.instances.has(id))
        yield* start()
        assert.strictEqual(daemon.instances.size, 0)
      }).pipe(runHarness)
  )

  it.live("an instance left on a node that was removed since is deleted when the node registers again", () =>
    Effect.gen(function* () {
      const { daemon, id, moveRepo, nodes, plane, servers, store } = yield* makeInstalled()
      daemon.fault("remove", "request-lost")
      yield* nodes.publish(NodeId.make("n1"), "lost")
      yield* servers.remove(id, { force: true })
      nodes.nodes.delete(NodeId.make("n1"))
      const left = store.read(moveRepo.deletions)
      assert.deepStrictEqual(yield* left, [{ server_id: id, node_id: NodeId.make("n1") }])
      daemon.boot += 1
      const answer = yield* plane.register(daemon.registration)
      assert.deepStrictEqual(answer.delete, [id])
      yield* until(
        "the node has removed it",
        Effect.map(left, (rows) => rows.length === 0 && daemon.instances.size === 0)
      )
      assert.strictEqual(daemon.lost.size, 0)
    }).pipe(runHarness)
  )

  it.live("a deletion during an installation leaves nothing behind", () =>
    Effect.gen(function* () {
      const { daemon, nodes, start } = yield* makeHarness()
      const { servers, events, settled, records } = yield* start()
      for (let yields = 0; yields < 20; yields++) {
        const { id } = yield* servers.create(request())
        for (let n = 0; n < yields * 3; n++) yield* Effect.yieldNow
        yield* servers.remove(id, { force: false })
        assert.strictEqual((yield* events(id)).filter((event) => event === "deleted").length, 1)
      }
      yield* settled
      assert.deepStrictEqual(yield* records, [])
      yield* until(
        "the node has none",
        Effect.sync(() => daemon.instances.size === 0)
      )
      assert.strictEqual(nodes.held.size, 0)
    }).pipe(runHarness)
  )

  it.live("a creation on its way to the node does not arrive after the deletion", () =>
    Effect.gen(function* () {
      const { daemon, start } = yield* makeHarness()
      const { servers, settled, records } = yield* start()
      const sent = Latch.makeUnsafe(false)
      let steps = 0
      daemon.step = Effect.suspend(() => {
        steps += 1
        return steps === 1 ? sent.await : Effect.void
      })
      const { id } = yield* servers.create(request())
      yield* until(
        "the creation is on its way",
        Effect.sync(() => steps === 1)
      )
      const removal = yield* Effect.forkChild(servers.remove(id, { force: false }))
      for (let n = 0; n < 100; n++) yield* Effect.yieldNow
      sent.openUnsafe()
      yield* Fiber.join(removal)
      yield* settled
      assert.deepStrictEqual(yield* records, [])
      assert.strictEqual(daemon.instances.size, 0)
    }).pipe(runHarness)
  )

  it.live("one of several concurrent deletions succeeds, and one deleted event is published", () =>
    Effect.gen(function* () {
      const { id, servers, events } = yield* makeInstalled()
      const results = yield* Effect.all(
        Array.from({ length: 10 }, (_, n) => Effect.result(servers.remove(id, { force: n % 2 === 0 }))),
        { concurrency: "unbounded" }
      )
      const codes = results.map((result) => (result._tag === "Success" ? "200" : result.failure.code))
      assert.deepStrictEqual(codes.toSorted(), ["200", ...Array.from({ length: 9 }, () => "404")])
      assert.strictEqual((yield* events(id)).filter((event) => event === "deleted").length, 1)
    }).pipe(runHarness)
  )

  it.live("the end of the process during the deletion does not publish a second deleted event", () =>
    Effect.gen(function* () {
      const { id, servers, daemon, becomes, events, settled, isGone } = yield* makeInstalled("lobby")
      yield* servers.power(id, "start", 30)
      yield* becomes(id, "running")
      daemon.move(id, "offline")
      yield* Effect.ignore(servers.remove(id, { force: false }))
      yield* settled
      assert.isTrue(yield* isGone(id))
      assert.strictEqual((yield* events(id)).filter((event) => event === "deleted").length, 1)
    }).pipe(runHarness)
  )

  it.live(
    "after a crash of the control plane at any moment, the server is deleted or can still be deleted",
    () =>
      Effect.gen(function* () {
        for (const fault of ["request-lost", "answer-lost"] as const) {
          const { id, servers, daemon, start, stop } = yield* makeInstalled()
          daemon.fault("remove", fault)
          assert.strictEqual((yield* Effect.flip(servers.remove(id, { force: false }))).code, "503")
          yield* stop
          const again = yield* start()
          yield* again.settled
          yield* again.servers.remove(id, { force: false })
          assert.deepStrictEqual(yield* again.records, [])
          assert.strictEqual(daemon.instances.size, 0)
          assert.strictEqual((yield* again.events(id)).filter((event) => event === "deleted").length, 1)
        }
      }).pipe(runHarness)
  )

  it.live("a removal that another replica has ended or given up is not done again", () =>
    Effect.gen(function* () {
      const { id, servers, daemon, becomes, lifecycle, settled, start, stop } = yield* makeInstalled(
        "survival",
        60
      )
      yield* servers.power(id, "start", 30)
      yield* becomes(id, "running")
      yield* servers.power(id, "kill", 0)
      yield* becomes(id, "offline")
      yield* settled
      daemon.files.set(id, "a castle")
      yield* lifecycle.beginRemoval(id, {})
      assert.strictEqual(yield* lifecycle.keeps(id), true)
      yield* stop
      const again = yield* start({ connect: false })
      const giveUp = Effect.ignore(again.lifecycle.giveUpRemoval(id))
      daemon.step = Effect.suspend(() => (daemon.kept.has(id) ? giveUp : Effect.void))
      yield* again.connect
      yield* until(
        "the node has the server again",
        Effect.sync(() => daemon.calls.includes(`remove ${id}`) && daemon.instances.has(id))
      )
      yield* again.becomes(id, "offline")
      assert.strictEqual(daemon.files.get(id), "a castle")
      assert.strictEqual((yield* again.records).length, 1)

      yield* again.servers.remove(id, { force: false })
      assert.isUndefined(yield* again.lifecycle.keeps(id))
      assert.strictEqual(daemon.files.get(id), "a castle")
    }).pipe(runHarness)
  )
})
