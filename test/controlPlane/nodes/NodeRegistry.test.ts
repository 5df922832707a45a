import { randomBytes } from "node:crypto"
import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Fiber, Layer, Path, Stream } from "effect"
import { TestClock } from "effect/testing"
import type { Conflict, InvalidRequest, NotFound, Unavailable } from "../../../src/contract/domain/errors.ts"
import { NodeId, ServerId } from "../../../src/contract/domain/Id.ts"
import type { RegistrationRequired } from "../../../src/contract/nodeApi/ControlPlaneApi.ts"
import { Fleet } from "../../../src/controlPlane/nodes/fleet/Fleet.ts"
import { LoadBalancer } from "../../../src/controlPlane/nodes/LoadBalancer.ts"
import { type NodeChange, NodeRegistry } from "../../../src/controlPlane/nodes/NodeRegistry.ts"
import { makeTokenSeal, TokenSeal } from "../../../src/controlPlane/nodes/nodeWrites.ts"
import { layerSqlite } from "../../../src/controlPlane/store/layers/layerDatabase.ts"
import { NodeRepo } from "../../../src/controlPlane/store/repos/NodeRepo.ts"
import { Store } from "../../../src/controlPlane/store/Store.ts"
import { plain } from "../../support/ids.ts"
import { allocation, host, registration } from "../../support/samples.ts"
import { temporaryFolder } from "../../support/temporaryFolder.ts"
import {
  GIB,
  heartbeat,
  MemoryTables,
  memoryNodes,
  nodesLayer,
  request,
  serverRecord,
  tables
} from "./support/fleet.ts"

/** Collects all later changes. */
const follow = Effect.gen(function* () {
  const registry = plain(yield* NodeRegistry)
  const seen: Array<string> = []
  yield* registry.changes.pipe(
    Stream.runForEach((change: NodeChange) =>
      Effect.sync(() => seen.push(`${change.node_id} ${change.kind}`))
    ),
    Effect.forkScoped({ startImmediately: true })
  )
  return seen
})
const names = Effect.flatMap(NodeRegistry, (registry) =>
  Effect.map(registry.list, (list) => list.map((node) => node.name))
)
const restore = (node_id: string) =>
  Effect.flatMap(LoadBalancer, (balancer) => balancer.restore([serverRecord("s1", node_id, [25565])]))

describe("spec 2.2: nodes", () => {
  it.effect("the list is sorted by name, then id, with exactly the five fields", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      assert.deepStrictEqual(yield* registry.list, [])
      yield* registry.register(registration("n2", { name: "alpha" }))
      yield* registry.register(registration("n3", { name: "Zeta" }))
      yield* registry.register(registration("n1", { name: "alpha" }))
      assert.deepStrictEqual(yield* registry.list, [
        { id: NodeId.make("n3"), name: "Zeta", location: "eu", url: "http://n3:5585", drained: false },
        { id: NodeId.make("n1"), name: "alpha", location: "eu", url: "http://n1:5585", drained: false },
        { id: NodeId.make("n2"), name: "alpha", location: "eu", url: "http://n2:5585", drained: false }
      ])
      assert.strictEqual(yield* registry.list, yield* registry.list, "kept until something changes")
      yield* registry.register(registration("n3", { name: "beta" }))
      assert.deepStrictEqual(yield* names, ["alpha", "alpha", "beta"])
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("a node has a state and a load", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      yield* TestClock.setTime(Date.UTC(2026, 0, 2, 3, 4, 5, 678))
      yield* registry.register(registration("n1"))
      yield* (yield* LoadBalancer).place(request("s1", { ports: 2 }))
      assert.deepStrictEqual(yield* registry.get("n1"), {
        id: NodeId.make("n1"),
        name: "n1",
        location: "eu",
        url: "http://n1:5585",
        drained: false,
        connected: true,
        last_seen_at: "2026-01-02T03:04:05.678Z",
        version: "1.0.0",
        capacity: { memory_bytes: 8 * GIB, cpu_threads: 4, disk_bytes: 100_000_000_000 },
        usage: null,
        committed: { memory_bytes: GIB, cpu_threads: 0, disk_bytes: 0 },
        ports_free: 8,
        servers: 1,
        unencrypted: true
      })
      yield* TestClock.adjust("10 seconds")
      yield* registry.heartbeat("n1", heartbeat("n1-boot"))
      assert.strictEqual((yield* registry.get("n1")).last_seen_at, "2026-01-02T03:04:15.678Z")
      assert.strictEqual((yield* registry.system("n1")).os, host.os)
      const asked: ReadonlyArray<Effect.Effect<unknown, NotFound | Unavailable>> = [
        registry.get("zz"),
        registry.system("zz"),
        registry.setDrained("zz", true)
      ]
      for (const unknown of asked) {
        assert.strictEqual((yield* Effect.flip(unknown)).detail, "node not found: zz")
      }
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("a drained node stays drained when it registers again", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      yield* registry.register(registration("n1"))
      assert.isTrue((yield* registry.setDrained("n1", true)).drained)
      assert.isTrue((yield* registry.list)[0]?.drained)
      yield* registry.disconnect("n1", "n1-boot")
      yield* registry.register(registration("n1", { boot_id: "second" }))
      assert.isTrue((yield* registry.get("n1")).drained)
      assert.isTrue((yield* MemoryTables).nodes.get(NodeId.make("n1"))?.drained)
      assert.isFalse((yield* registry.setDrained("n1", false)).drained)
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("changes of a node are stored in the order in which they are made", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      const state = yield* MemoryTables
      yield* registry.register(registration("n1"))
      const reached = yield* Deferred.make<void>()
      const go = yield* Deferred.make<void>()
      state.before = Effect.andThen(Deferred.succeed(reached, undefined), Deferred.await(go))
      const again = yield* Effect.forkChild(registry.register(registration("n1", { boot_id: "second" })))
      yield* Deferred.await(reached)
      state.before = Effect.void
      const draining = yield* Effect.forkChild(registry.setDrained("n1", true), { startImmediately: true })
      yield* Deferred.succeed(go, undefined)
      yield* Fiber.join(again)
      assert.isTrue((yield* Fiber.join(draining)).drained)
      assert.isTrue(state.nodes.get(NodeId.make("n1"))?.drained)
      assert.strictEqual(state.nodes.get(NodeId.make("n1"))?.boot_id, "second")
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("a node that owns servers cannot be removed; a node without servers can", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      const state = yield* MemoryTables
      yield* registry.register(registration("n1", { name: "first" }))
      yield* restore("n1")
      const conflict = yield* Effect.flip(registry.remove("n1"))
      assert.strictEqual(conflict._tag, "Conflict")
      assert.strictEqual(conflict.detail, "node owns a server: n1")
      yield* (yield* LoadBalancer).release(ServerId.make("s1"))
      state.away = true
      assert.strictEqual((yield* Effect.flip(registry.remove("n1")))._tag, "Unavailable")
      assert.isTrue((yield* registry.get("n1")).connected, "as it was")
      assert.strictEqual(registry.nameOf("n1"), "first")
      state.away = false
      yield* registry.remove("n1")
      assert.strictEqual(state.nodes.size, 0)
      assert.deepStrictEqual(yield* names, [])
      assert.strictEqual(registry.nameOf("n1"), "n1")
      assert.isFalse(registry.isConnected("n1"))
      assert.strictEqual((yield* Effect.flip(registry.remove("n1")))._tag, "NotFound")
      yield* Effect.flip(registry.heartbeat("n1", heartbeat("n1-boot")))
      yield* registry.register(registration("n1"))
      assert.deepStrictEqual(yield* names, ["n1"])
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("no server is placed on a node during its removal", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      const balancer = plain(yield* LoadBalancer)
      const state = yield* MemoryTables
      yield* registry.register(registration("n1"))
      const reached = yield* Deferred.make<void>()
      const go = yield* Deferred.make<void>()
      state.before = Effect.andThen(Deferred.succeed(reached, undefined), Deferred.await(go))
      const removal = yield* Effect.forkChild(registry.remove("n1"))
      yield* Deferred.await(reached)
      assert.strictEqual((yield* Effect.flip(balancer.place(request("s1"))))._tag, "Unavailable")
      assert.strictEqual(
        (yield* Effect.flip(balancer.place(request("s1", { node_id: "n1" }))))._tag,
        "NotFound"
      )
      yield* Deferred.succeed(go, undefined)
      yield* Fiber.join(removal)
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("a deregistered node is listed only while it owns servers", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      const balancer = plain(yield* LoadBalancer)
      yield* registry.register(registration("n1"))
      yield* restore("n1")
      yield* registry.disconnect("n1", "n1-boot")
      assert.isFalse((yield* registry.get("n1")).connected)
      assert.deepStrictEqual(yield* names, ["n1"])
      yield* balancer.release(ServerId.make("s1"))
      assert.deepStrictEqual(yield* names, [])
      assert.strictEqual((yield* Effect.flip(registry.get("n1")))._tag, "NotFound")
      yield* restore("n1")
      assert.deepStrictEqual(yield* names, ["n1"])
      yield* balancer.release(ServerId.make("s1"))
      yield* registry.register(registration("n1"))
      assert.deepStrictEqual(yield* names, ["n1"])
    }).pipe(Effect.provide(memoryNodes()))
  )
})

describe("spec 9.2: register, heartbeat, disconnect", () => {
  it.effect("every registration returns a new token of 32 bytes", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      const one = yield* registry.register(registration("n1"))
      const two = yield* registry.register(registration("n1"))
      assert.match(one.token, /^[A-Za-z0-9_-]{43}$/)
      assert.notStrictEqual(one.token, two.token)
      const kept = (yield* MemoryTables).nodes.get(NodeId.make("n1"))?.token ?? ""
      assert.notInclude(kept, two.token)
      assert.strictEqual((yield* TokenSeal).open(NodeId.make("n1"), kept), two.token)
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("a new boot replaces the previous one, whose messages are refused", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      yield* registry.register(registration("n1", { boot_id: "old" }))
      yield* registry.checkBoot("n1", "old")
      yield* registry.register(
        registration("n1", { boot_id: "new", allocations: [allocation({ ports: "1-3" })] })
      )
      yield* registry.checkBoot("n1", "new")
      for (const late of [
        registry.checkBoot("n1", "old"),
        registry.heartbeat("n1", heartbeat("old")),
        registry.disconnect("n1", "old"),
        registry.heartbeat("zz", heartbeat("old"))
      ]) {
        assert.strictEqual((yield* Effect.flip(late))._tag, "RegistrationRequired")
      }
      const node = yield* registry.get("n1")
      assert.isTrue(node.connected)
      assert.strictEqual(node.ports_free, 3)
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("an invalid registration is refused and stores nothing", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      const error = yield* Effect.flip(
        registry.register(registration("n1", { allocations: [allocation({ ports: "none" })] }))
      )
      assert.strictEqual(error._tag, "InvalidRequest")
      assert.deepStrictEqual(yield* registry.list, [])
      assert.strictEqual((yield* MemoryTables).nodes.size, 0)
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("while the database is away, nothing changes and reads work", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      const state = yield* MemoryTables
      yield* registry.register(registration("n1"))
      const seen = yield* follow
      state.away = true
      const writes: ReadonlyArray<
        Effect.Effect<unknown, InvalidRequest | NotFound | Conflict | RegistrationRequired | Unavailable>
      > = [
        registry.register(registration("n2")),
        registry.register(registration("n1", { boot_id: "second" })),
        registry.setDrained("n1", true),
        registry.disconnect("n1", "n1-boot"),
        registry.remove("n1")
      ]
      for (const write of writes) {
        assert.strictEqual((yield* Effect.flip(write))._tag, "Unavailable")
      }
      assert.deepStrictEqual(yield* names, ["n1"])
      yield* registry.heartbeat("n1", heartbeat("n1-boot"))
      const node = yield* registry.get("n1")
      assert.isTrue(node.connected)
      assert.isFalse(node.drained)
      assert.deepStrictEqual(seen, [])
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("a registration is stored although its caller has disconnected", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      const state = yield* MemoryTables
      const reached = yield* Deferred.make<void>()
      const go = yield* Deferred.make<void>()
      state.before = Effect.andThen(Deferred.succeed(reached, undefined), Deferred.await(go))
      const registering = yield* Effect.forkChild(registry.register(registration("n1")))
      yield* Deferred.await(reached)
      const interruption = yield* Effect.forkChild(Fiber.interrupt(registering), { startImmediately: true })
      yield* Deferred.succeed(go, undefined)
      yield* Fiber.join(interruption)
      assert.strictEqual(state.nodes.size, 1)
      assert.isTrue(registry.isConnected("n1"))
    }).pipe(Effect.provide(memoryNodes()))
  )
})

describe("spec 9.6: node gone", () => {
  it.effect(
    "a node is lost after 30 s without a heartbeat, given up after 10 min, and connected when it registers again",
    () =>
      Effect.gen(function* () {
        const registry = plain(yield* NodeRegistry)
        const seen = yield* follow
        yield* registry.register(registration("n1"))
        yield* TestClock.adjust("20 seconds")
        yield* registry.heartbeat("n1", heartbeat("n1-boot"))
        yield* TestClock.adjust("29999 millis")
        assert.isTrue(registry.isConnected("n1"))
        yield* TestClock.adjust("1 millis")
        assert.isFalse(registry.isConnected("n1"))
        assert.deepStrictEqual(seen, ["n1 connected", "n1 lost"])
        assert.strictEqual(
          (yield* Effect.flip((yield* LoadBalancer).place(request("s1"))))._tag,
          "Unavailable"
        )
        const error = yield* Effect.flip(registry.heartbeat("n1", heartbeat("n1-boot")))
        assert.strictEqual(error._tag, "RegistrationRequired", "the node must register")
        yield* TestClock.adjust("570 seconds")
        assert.deepStrictEqual(seen.slice(2), ["n1 given-up"])
        assert.deepStrictEqual(yield* names, ["n1"], "known still")
        yield* registry.register(registration("n1"))
        yield* TestClock.adjust("1 millis")
        assert.deepStrictEqual(seen.slice(3), ["n1 connected"])
        assert.strictEqual((yield* (yield* LoadBalancer).place(request("s1"))).node_id, "n1")
      }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("the timeouts come from the settings", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      const seen = yield* follow
      yield* registry.register(registration("n1"))
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(seen, ["n1 connected", "n1 lost"])
      yield* TestClock.adjust("1 seconds")
      assert.deepStrictEqual(seen.slice(2), ["n1 given-up"])
    }).pipe(Effect.provide(memoryNodes({ heartbeatTimeout: "2 seconds", nodeLostAfter: "3 seconds" })))
  )

  it.effect("a deregistered node is disconnected at once, and lost unless it registers in time", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      yield* registry.register(registration("n1"))
      yield* registry.register(registration("n2"))
      const seen = yield* follow
      yield* registry.disconnect("n1", "n1-boot")
      yield* registry.disconnect("n2", "n2-boot")
      assert.isFalse(registry.isConnected("n1"))
      yield* TestClock.adjust("29 seconds")
      yield* registry.register(registration("n2", { boot_id: "second" }))
      yield* TestClock.adjust("1 seconds")
      assert.deepStrictEqual(seen, ["n2 connected", "n1 lost"])
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("the token of a node is renewed before it expires, and the node stays connected", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      const fleet = plain(yield* Fleet)
      const seen = yield* follow
      const beat = registry.heartbeat("n1", heartbeat("n1-boot"))
      const beats = Effect.forEach(
        Array.from({ length: 6 }),
        () => Effect.andThen(TestClock.adjust("10 seconds"), beat),
        { discard: true }
      )
      const first = yield* registry.register(registration("n1"))
      const sealed = fleet.get("n1")?.record?.token
      assert.notInclude(sealed, first.token)
      yield* beats
      // A heartbeat whose response asks for a registration counts too.
      yield* TestClock.adjust("10 seconds")
      assert.strictEqual((yield* Effect.flip(beat))._tag, "RegistrationRequired")
      yield* TestClock.adjust("25 seconds")
      assert.isTrue(registry.isConnected("n1"))
      const second = yield* registry.register(registration("n1"))
      assert.notStrictEqual(second.token, first.token)
      assert.notStrictEqual(fleet.get("n1")?.record?.token, sealed)
      yield* beats
      assert.deepStrictEqual(seen, ["n1 connected", "n1 connected"])
    }).pipe(Effect.provide(memoryNodes({ tokenLifetime: "65 seconds" })))
  )

  it.effect(
    "a node must register again if its token cannot be read: sealed with another secret, or stored in clear text",
    () =>
      Effect.gen(function* () {
        for (const token of ["clear-text", makeTokenSeal(randomBytes(32)).seal(NodeId.make("n1"), "token")]) {
          const state = tables()
          yield* Effect.gen(function* () {
            const registry = plain(yield* NodeRegistry)
            const fleet = plain(yield* Fleet)
            yield* registry.register(registration("n1"))
            const record = fleet.get("n1")?.record
            assert.isDefined(record)
            fleet.put({ ...record, token })
            const beat = registry.heartbeat("n1", heartbeat("n1-boot"))
            assert.strictEqual((yield* Effect.flip(beat))._tag, "RegistrationRequired")
            yield* registry.register(registration("n1"))
            yield* beat
          }).pipe(Effect.provide(memoryNodes({}, state)))
        }
      })
  )

  it.effect("an expelled node is lost at once, and given up later, once each", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      const fleet = plain(yield* Fleet)
      yield* registry.register(registration("n1"))
      yield* registry.register(registration("n2"))
      const [token = "", other = ""] = ["n1", "n2"].map((id) => fleet.get(id)?.record?.token)
      const seen = yield* follow
      yield* registry.revoke("n1", token, { lost: true })
      yield* registry.revoke("n1", token, { lost: true })
      yield* registry.revoke("n2", other)
      yield* TestClock.adjust("1 seconds")
      assert.deepStrictEqual(seen, ["n1 lost"])
      yield* TestClock.adjust("11 minutes")
      assert.deepStrictEqual(seen, ["n1 lost", "n2 lost", "n1 given-up", "n2 given-up"])
      yield* registry.register(registration("n1"))
      assert.isTrue(registry.isConnected("n1"))
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("every subscriber receives every change once, in the same order", () =>
    Effect.gen(function* () {
      const registry = plain(yield* NodeRegistry)
      const first = yield* follow
      const second = yield* follow
      const ids = Array.from({ length: 100 }, (_, i) => `n${i}`)
      yield* Effect.forEach(ids, (id) => registry.register(registration(id)), { concurrency: "unbounded" })
      yield* TestClock.adjust("30 seconds")
      assert.strictEqual(first.length, 200)
      assert.strictEqual(new Set(first).size, 200)
      assert.deepStrictEqual(first, second)
    }).pipe(Effect.provide(memoryNodes()))
  )
})

describe("spec 9.6: control plane killed", () => {
  const restoresNodes = (store: (life: number) => ReturnType<typeof memoryNodes>) =>
    Effect.gen(function* () {
      yield* Effect.gen(function* () {
        const registry = plain(yield* NodeRegistry)
        yield* registry.register(
          registration("n1", { name: "first", allocations: [allocation({ ports: "1-4" })] })
        )
        yield* registry.register(registration("n2"))
        yield* registry.register(registration("n3"))
        yield* registry.setDrained("n2", true)
        yield* registry.disconnect("n3", "n3-boot")
      }).pipe(Effect.provide(store(1)))

      yield* Effect.gen(function* () {
        const registry = plain(yield* NodeRegistry)
        const seen = yield* follow
        assert.deepStrictEqual(yield* names, ["first", "n2"])
        const node = yield* registry.get("n1")
        assert.isFalse(node.connected)
        assert.strictEqual(node.last_seen_at, "1970-01-01T00:00:00.000Z")
        assert.strictEqual(node.ports_free, 4)
        assert.isTrue((yield* registry.get("n2")).drained)
        yield* registry.checkBoot("n1", "n1-boot")
        assert.strictEqual(
          (yield* Effect.flip(registry.heartbeat("n1", heartbeat("n1-boot"))))._tag,
          "RegistrationRequired"
        )
        const busy = yield* Effect.flip((yield* LoadBalancer).place(request("s1", { node_id: "n1" })))
        assert.strictEqual(busy.detail, "node is not connected: n1")
        yield* registry.register(registration("n1"))
        yield* TestClock.adjust("30 seconds")
        assert.sameMembers(seen, ["n1 connected", "n2 lost", "n3 lost", "n1 lost"])
      }).pipe(Effect.provide(store(2)))
    })

  it.effect("a restarted control plane restores its nodes, which are lost unless they register", () => {
    const state = tables()
    return restoresNodes(() => memoryNodes({}, state))
  })

  /** Nodes over a database file; layers built again act as another process. */
  const onFile = Effect.gen(function* () {
    const path = yield* Path.Path
    const folder = yield* temporaryFolder
    const filename = path.join(folder, "muster.db")
    const sqlite = Layer.merge(layerSqlite({ filename }), Layer.succeed(MemoryTables, tables()))
    return Layer.fresh(nodesLayer().pipe(Layer.provideMerge(sqlite), Layer.orDie))
  }).pipe(Effect.provide(NodeServices.layer))

  it.effect("a restarted control plane restores its nodes from a database file", () =>
    Effect.gen(function* () {
      const nodes = yield* onFile
      yield* restoresNodes(() => nodes)
    })
  )

  it.effect(
    "the time of the last heartbeat is stored to the minute, without a write for each heartbeat",
    () =>
      Effect.gen(function* () {
        const nodes = yield* onFile
        const written = Effect.gen(function* () {
          const heartbeats = yield* (yield* Store).read((yield* NodeRepo).heartbeats)
          return heartbeats.map(({ beats, heard_at, node_id }) => [node_id, beats, heard_at / 1000])
        })
        yield* Effect.gen(function* () {
          const registry = plain(yield* NodeRegistry)
          yield* registry.register(registration("n1"))
          yield* registry.register(registration("n2"))
          yield* Effect.repeat(
            Effect.andThen(TestClock.adjust("10 seconds"), registry.heartbeat("n1", heartbeat("n1-boot"))),
            { times: 11 }
          )
          assert.deepStrictEqual(yield* written, [["n1", 1, 60]])
          yield* TestClock.adjust("11 seconds")
          assert.deepStrictEqual(yield* written, [["n1", 2, 120]])
          // A write about the node is not a heartbeat.
          yield* TestClock.adjust("18 seconds")
          assert.isTrue(registry.isConnected("n1"))
          yield* TestClock.adjust("1 seconds")
          assert.isFalse(registry.isConnected("n1"))
          yield* TestClock.adjust("10 minutes")
          assert.deepStrictEqual(yield* written, [["n1", 2, 120]])
        }).pipe(Effect.provide(nodes))

        yield* Effect.gen(function* () {
          const registry = plain(yield* NodeRegistry)
          assert.strictEqual((yield* registry.get("n1")).last_seen_at, "1970-01-01T00:02:00.000Z")
          assert.strictEqual((yield* registry.get("n2")).last_seen_at, "1970-01-01T00:00:00.000Z")
          yield* registry.register(registration("n1"))
          yield* TestClock.adjust("30 seconds")
          assert.isFalse(registry.isConnected("n1"))
        }).pipe(Effect.provide(nodes))
      })
  )
})
