import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Latch } from "effect"
import { TestClock } from "effect/testing"
import { NodeId } from "../../../src/contract/domain/Id.ts"
import { plain } from "../../../src/controlPlane/servers/list/summary.ts"
import { record } from "../../support/samples.ts"
import { FakeNodes } from "./support/FakeNodes.ts"
import { idsOf, listOf, makeHarness, request, runHarness } from "./support/harness.ts"

describe("spec 3.3: POST /api/servers", () => {
  it.live("the response is the summary, sent before the installation ends", () =>
    Effect.gen(function* () {
      const { nodes, start } = yield* makeHarness()
      const { servers, becomes, events, settled } = yield* start()
      const created = yield* servers.create(request({ overrides: { save: true } }))
      assert.deepStrictEqual(JSON.parse(created.body), {
        id: created.id,
        blueprint_id: "survival",
        node_name: "n1",
        node_id: "n1",
        allocations: {
          force_outgoing_ip: false,
          default: { ip: "10.0.0.1", port: 25565 },
          alias: "",
          mappings: { "10.0.0.1": [25565] }
        },
        overrides: { save: true }
      })
      assert.deepStrictEqual(
        JSON.parse((yield* servers.get(created.id, plain)).body),
        JSON.parse(created.body)
      )
      yield* becomes(created.id, "offline")
      yield* settled
      assert.deepStrictEqual(yield* events(), ["status installing", "status offline"])
      assert.deepStrictEqual([...nodes.held.keys()], [created.id])
    }).pipe(runHarness)
  )

  it.live("an unknown blueprint or node is 404, no connected node is 503, and nothing is reserved", () =>
    Effect.gen(function* () {
      const { nodes, start } = yield* makeHarness()
      const { servers, records } = yield* start({ connect: false })
      const failure = (change: Parameters<typeof request>[0]) =>
        Effect.map(Effect.flip(servers.create(request(change))), (error) => [error.code, error.detail])
      assert.deepStrictEqual(yield* failure({ blueprint_id: "nope" }), ["404", "blueprint not found: nope"])
      assert.deepStrictEqual(yield* failure({ node_id: "nope" }), ["404", "node not found: nope"])
      assert.deepStrictEqual(yield* failure({}), ["503", "no nodes available"])
      assert.strictEqual(nodes.held.size, 0)
      assert.deepStrictEqual(yield* records, [])
    }).pipe(runHarness)
  )

  it.live("a failed write releases the reservation", () =>
    Effect.gen(function* () {
      const { nodes, database, start } = yield* makeHarness()
      const { servers, records } = yield* start()
      database.away = true
      const error = yield* Effect.flip(servers.create(request()))
      assert.strictEqual(error.code, "503")
      assert.strictEqual(nodes.held.size, 0)
      database.away = false
      const { id } = yield* servers.create(request())
      assert.deepStrictEqual(
        (yield* records).map((row) => row.id),
        [id]
      )
    }).pipe(runHarness)
  )

  it.live("if another program holds a port, the port is marked as taken and another one is placed", () =>
    Effect.gen(function* () {
      const { createElsewhere, nodes, start } = yield* makeHarness()
      const { servers } = yield* start()
      const foreign = record({ id: "srv_00000000000000000000000000" })
      yield* createElsewhere(foreign)
      const { body } = yield* servers.create(request())
      assert.strictEqual(JSON.parse(body).allocations.default.port, 25566)
      assert.deepStrictEqual(nodes.held.get(foreign.id)?.ports, [25565])
    }).pipe(runHarness)
  )

  it.live("if other programs hold every port, the creation is 503 and nothing is reserved", () =>
    Effect.gen(function* () {
      const { createElsewhere, nodes, start } = yield* makeHarness({ ports: 1 })
      const { servers } = yield* start()
      yield* createElsewhere(record())
      assert.strictEqual((yield* Effect.flip(servers.create(request()))).code, "503")
      assert.deepStrictEqual([...nodes.held.keys()], [record().id])
    }).pipe(runHarness)
  )

  it.live("an interrupted creation is stored completely or not at all", () =>
    Effect.gen(function* () {
      const { nodes, start } = yield* makeHarness()
      const { servers, records, changes } = yield* start({ connect: false })
      yield* nodes.publish(NodeId.make("n1"), "connected")
      for (let yields = 0; yields < 40; yields++) {
        const fiber = yield* Effect.forkChild(servers.create(request()))
        for (let n = 0; n < yields; n++) yield* Effect.yieldNow
        yield* Fiber.interrupt(fiber)
      }
      const rows = yield* records
      assert.deepStrictEqual([...nodes.held.keys()].sort(), rows.map((row) => row.id).sort())
      const creations = (yield* changes).filter((change) => change.topic === "server:created")
      assert.strictEqual(creations.length, rows.length)
    }).pipe(runHarness)
  )
})

describe("spec 2.5: reserved with the record", () => {
  it.live("an interruption during the commit waits for the commit, and the ports stay reserved", () =>
    Effect.gen(function* () {
      const { nodes, start } = yield* makeHarness()
      const { servers, records, journal } = yield* start({ connect: false })
      yield* nodes.publish(NodeId.make("n1"), "connected")
      const committed = yield* Deferred.make<void>()
      const goOn = Latch.makeUnsafe(false)
      yield* journal.follow("publish", () =>
        Effect.andThen(Deferred.succeed(committed, undefined), goOn.await)
      )
      const creation = yield* Effect.forkChild(servers.create(request()))
      yield* Deferred.await(committed)
      const interruption = yield* Effect.forkChild(Fiber.interrupt(creation))
      for (let n = 0; n < 20; n++) yield* Effect.yieldNow
      goOn.openUnsafe()
      yield* Fiber.join(interruption)
      const ids = (yield* records).map((row) => row.id)
      assert.strictEqual(ids.length, 1)
      assert.deepStrictEqual([...nodes.held.keys()], ids)
    }).pipe(runHarness)
  )
})

describe("spec 3.1: GET /api/servers", () => {
  it.live("the list is sorted by creation, survives a restart, and shows the new name of a node", () =>
    Effect.gen(function* () {
      const { daemon, nodes, start } = yield* makeHarness()
      const first = yield* start()
      const created = []
      for (let n = 0; n < 5; n++) created.push((yield* first.servers.create(request())).id)
      yield* first.settled
      const list = yield* listOf(first, plain)
      const ids = yield* idsOf(first)
      assert.deepStrictEqual([...ids].sort(), created.sort())
      assert.deepStrictEqual(
        list.map((server: { id: string }) => server.id),
        ids
      )
      assert.strictEqual((yield* first.servers.counts).get("offline"), 5)
      yield* first.stop
      const second = yield* start()
      assert.deepStrictEqual(yield* listOf(second, plain), list)
      daemon.boot += 1
      yield* second.plane.register({ ...daemon.registration, name: "Frankfurt 1" })
      assert.strictEqual(nodes.nodes.get(NodeId.make("n1"))?.name, "Frankfurt 1")
      yield* Effect.yieldNow
      const names = (yield* listOf(second, plain)).map((server: { node_name: string }) => server.node_name)
      assert.deepStrictEqual([...new Set(names)], ["Frankfurt 1"])
    }).pipe(runHarness)
  )
})

describe("spec 3.3: Idempotency-Key", () => {
  const idempotency = { key: "k", body_hash: "aa" }

  it.live(
    "the same key with the same body returns the first response, also after the server is deleted",
    () =>
      Effect.gen(function* () {
        const { start } = yield* makeHarness()
        const { servers, records, settled } = yield* start()
        const first = yield* servers.create(request({ idempotency }))
        assert.deepStrictEqual(yield* servers.create(request({ idempotency })), first)
        yield* settled
        yield* servers.remove(first.id, { force: false })
        assert.deepStrictEqual(yield* servers.create(request({ idempotency })), first)
        assert.deepStrictEqual(yield* records, [])
      }).pipe(runHarness)
  )

  it.live("the same key with another body is 409", () =>
    Effect.gen(function* () {
      const { start } = yield* makeHarness()
      const { servers, records } = yield* start()
      yield* servers.create(request({ idempotency }))
      const error = yield* Effect.flip(
        servers.create(request({ idempotency: { ...idempotency, body_hash: "bb" } }))
      )
      assert.strictEqual(error.code, "409")
      assert.strictEqual((yield* records).length, 1)
    }).pipe(runHarness)
  )

  it.live("concurrent requests with one key create one server, on one control plane and on two", () =>
    Effect.gen(function* () {
      const { nodes, start } = yield* makeHarness()
      const { servers, records } = yield* start()
      const other = yield* start({ connect: false })
      const answers = yield* Effect.all(
        Array.from({ length: 10 }, (_, n) =>
          (n % 2 === 0 ? servers : other.servers).create(request({ idempotency }))
        ),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(new Set(answers.map((answer) => answer.id)).size, 1)
      assert.strictEqual((yield* records).length, 1)
      assert.strictEqual(nodes.held.size, 1)
    }).pipe(runHarness)
  )

  it.effect("a failed request is not stored; a response is stored for 24 h", () =>
    Effect.gen(function* () {
      const { start } = yield* makeHarness()
      const creation = ({ servers }: Effect.Success<ReturnType<typeof start>>) =>
        servers.create(request({ idempotency }))
      const plane = yield* start({ connect: false })
      assert.strictEqual((yield* Effect.flip(creation(plane))).code, "503")
      yield* plane.connect
      const first = yield* creation(plane)
      // Nothing runs meanwhile: each round of 24 hours of heartbeats would run in this test.
      yield* plane.stop
      yield* TestClock.adjust("23 hours")
      const next = yield* start()
      assert.strictEqual((yield* creation(next)).id, first.id)
      yield* next.stop
      yield* TestClock.adjust("61 minutes")
      assert.notStrictEqual((yield* creation(yield* start())).id, first.id)
    }).pipe(runHarness)
  )
})

describe("spec 3.6: lists", () => {
  it.live("lists with different fields at the same time are complete", () =>
    Effect.gen(function* () {
      const { start } = yield* makeHarness()
      const { servers } = yield* start({ nodes: new FakeNodes({ id: "n1", ports: 100 }) })
      yield* Effect.forEach(Array.from({ length: 60 }), () => servers.create(request()), { concurrency: 8 })
      const sets = Array.from({ length: 12 }, (_, include) => include)
      const lists = yield* Effect.forEach(sets, (include) => listOf({ servers }, include), {
        concurrency: "unbounded"
      })
      for (const list of lists) assert.lengthOf(list, 60)
    }).pipe(runHarness)
  )
})
