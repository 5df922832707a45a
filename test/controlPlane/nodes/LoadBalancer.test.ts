import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Result } from "effect"
import { TestClock } from "effect/testing"
import * as fc from "fast-check"
import { NodeId, ServerId } from "../../../src/contract/domain/Id.ts"
import type { Registration } from "../../../src/contract/domain/NodeMessages.ts"
import { DaemonClient } from "../../../src/controlPlane/nodes/DaemonClient.ts"
import { Fleet } from "../../../src/controlPlane/nodes/fleet/Fleet.ts"
import type { Strategy } from "../../../src/controlPlane/nodes/fleet/place.ts"
import { LoadBalancer, type Placement } from "../../../src/controlPlane/nodes/LoadBalancer.ts"
import { NodeRegistry } from "../../../src/controlPlane/nodes/NodeRegistry.ts"
import type { PlacementRequest } from "../../../src/controlPlane/nodes/placementChoice.ts"
import type { Plain } from "../../support/ids.ts"
import { allocation, registration } from "../../support/samples.ts"
import { GIB, memoryNodes, request, serverRecord } from "./support/fleet.ts"

const register = (id: string, fields: Partial<Registration> = {}) =>
  Effect.flatMap(NodeRegistry, (registry) => registry.register(registration(id, fields)))
const place = (id: string, fields: Partial<Plain<PlacementRequest>> = {}) =>
  Effect.flatMap(LoadBalancer, (balancer) => balancer.place(request(id, fields)))
const release = (id: string) =>
  Effect.flatMap(LoadBalancer, (balancer) => balancer.release(ServerId.make(id)))
const restore = (...records: Parameters<LoadBalancer["Service"]["restore"]>[0]) =>
  Effect.flatMap(LoadBalancer, (balancer) => balancer.restore(records))
const detail = (id: string) => Effect.flatMap(NodeRegistry, (registry) => registry.get(NodeId.make(id)))
const drain = (id: string, drained = true) =>
  Effect.flatMap(NodeRegistry, (registry) => registry.setDrained(NodeId.make(id), drained))
const nodeOf = (id: string, fields: Partial<Plain<PlacementRequest>> = {}) =>
  Effect.map(place(id, fields), (placement) => placement.node_id)
const hintOf = (id: string, fields: Partial<Plain<PlacementRequest>> = {}) =>
  Effect.map(Effect.flip(place(id, fields)), (error) => error.hint)
const memory = (memory_limit: number) => ({ limits: { memory_limit } })

describe("spec 2.4: place", () => {
  it.effect("concurrent requests are spread in the same way as sequential requests", () =>
    Effect.gen(function* () {
      const ports = { allocations: [allocation({ ports: "1-1000" })] }
      const large = { capacity: { memory_bytes: 1000 * GIB, cpu_threads: 1, disk_bytes: 0 }, ...ports }
      yield* Effect.forEach(["a", "b", "c", "d"], (id) => register(id, large))
      const ids = Array.from({ length: 1000 }, (_, i) => `s${i}`)
      const placements = yield* Effect.forEach(ids, (id) => place(id), { concurrency: "unbounded" })
      const held = new Set(
        placements.map(({ node_id, allocations }) => `${node_id}:${allocations.default.port}`)
      )
      assert.strictEqual(held.size, 1000)
      for (const id of ["a", "b", "c", "d"]) assert.strictEqual((yield* detail(id)).servers, 250)
      assert.deepStrictEqual(yield* (yield* LoadBalancer).placements, { placed: 1000, refused: 0 })
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("a placement commits memory, disk, CPU and ports; a release returns them once", () =>
    Effect.gen(function* () {
      yield* register("a")
      const limits = { memory_limit: 1024, disk_space: 5000, cpu_limit: 150 }
      yield* place("s1", { limits, ports: 3 })
      const after = yield* detail("a")
      assert.deepStrictEqual(after.committed, {
        memory_bytes: GIB,
        disk_bytes: 5_000_000_000,
        cpu_threads: 1.5
      })
      assert.strictEqual(after.ports_free, 7)
      assert.strictEqual(after.servers, 1)
      yield* release("s1")
      yield* release("s1")
      yield* release("never placed")
      const empty = yield* detail("a")
      assert.deepStrictEqual(empty.committed, { memory_bytes: 0, disk_bytes: 0, cpu_threads: 0 })
      assert.strictEqual(empty.ports_free, 10)
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("a rehearsal places on a copy, without the drained node; nothing is reserved", () =>
    Effect.gen(function* () {
      yield* register("a")
      yield* register("b")
      yield* place("s1", { node_id: "a" })
      const rehearsed = yield* (yield* LoadBalancer).rehearse(NodeId.make("a"))
      const outcomes = Array.from({ length: 9 }, (_, i) => rehearsed(request(`copy-${i}`)))
      assert.deepStrictEqual(
        outcomes.map((outcome) => (Result.isSuccess(outcome) ? outcome.success.node_id : "none")),
        [...Array.from({ length: 8 }, () => "b"), "none"]
      )
      assert.strictEqual((yield* detail("b")).ports_free, 10)
      assert.isFalse((yield* detail("a")).drained)
      assert.deepStrictEqual(yield* (yield* LoadBalancer).placements, { placed: 1, refused: 0 })
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("the node that a server leaves is not among the reasons of a refusal", () =>
    Effect.gen(function* () {
      yield* register("a")
      const from = NodeId.make("a")
      assert.strictEqual(
        yield* hintOf("s1", { from }),
        "No other node has registered; start one with `muster node`."
      )
      yield* register("b")
      assert.strictEqual(
        yield* hintOf("s1", { from, ...memory(100_000) }),
        "1 node: 1 without 100000 MiB of memory free (b; the most is 8192 MiB). Make room or add a node."
      )
      assert.strictEqual(yield* nodeOf("s1", { from }), "b")
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("a server without a memory limit counts as 512 MiB", () =>
    Effect.gen(function* () {
      yield* register("a", { capacity: { memory_bytes: GIB, cpu_threads: 1, disk_bytes: 0 } })
      yield* place("s1", { limits: {} })
      yield* place("s2", { limits: { memory_limit: 0 } })
      assert.strictEqual((yield* detail("a")).committed.memory_bytes, GIB)
      yield* Effect.flip(place("s3", { limits: {} }))
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("nodes are overcommitted by the factors of the settings", () =>
    Effect.gen(function* () {
      yield* register("a", { capacity: { memory_bytes: GIB, cpu_threads: 1, disk_bytes: 1_000_000_000 } })
      const limits = { memory_limit: 1024, disk_space: 500 }
      yield* place("s1", { limits })
      assert.include(yield* hintOf("s2", { limits: { memory_limit: 1024 } }), "1024 MiB of memory free")
      assert.include(
        yield* hintOf("s2", { limits: { memory_limit: 1, disk_space: 1501 } }),
        "1501 MB of disk free"
      )
      yield* place("s2", { limits: { memory_limit: 512, disk_space: 1500 } })
    }).pipe(Effect.provide(memoryNodes({ memoryOvercommit: 1.5, diskOvercommit: 2 })))
  )

  it.effect(
    "a node without a free uid gets no plain process; without another node, the refusal says so",
    () =>
      Effect.gen(function* () {
        const { system } = registration("a")
        yield* register("a", { runtimes: ["docker"], system: { ...system, lacks_uids: true } })
        const reason =
          "1 node: 1 without a free uid (a). Set MUSTER_PROCESS_UIDS of a daemon to a larger range"
        assert.include(yield* hintOf("s1"), reason)
        const named = yield* Effect.flip(place("s1", { node_id: NodeId.make("a") }))
        assert.deepStrictEqual([named._tag, named.detail], ["Unavailable", "node is full: a"])
        assert.include(named.hint, "Every uid of its MUSTER_PROCESS_UIDS is in use")
        assert.strictEqual(yield* nodeOf("s1", { runtimes: ["docker"] }), "a")
        yield* register("b")
        assert.strictEqual(yield* nodeOf("s2"), "b")
      }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("a placement respects location, runtime and anti-affinity", () =>
    Effect.gen(function* () {
      yield* register("a", { location: "eu", runtimes: ["docker"] })
      yield* register("b", { location: "us" })
      yield* register("c", { location: "us" })
      const inUs = { placement: { locations: ["us", "mars"], anti_affinity: true } }
      assert.strictEqual(yield* nodeOf("s1", inUs), "b")
      assert.strictEqual(yield* nodeOf("s2", inUs), "c")
      assert.strictEqual(yield* nodeOf("s3", { ...inUs, blueprint_id: "lobby" }), "b")
      assert.strictEqual(
        yield* hintOf("s4", inUs),
        "3 nodes: 2 with a server of survival already (b, c), 1 in another location (a). Add a node in us or mars. Add a node: the blueprint allows one server a node."
      )
      assert.strictEqual(yield* nodeOf("s5", { runtimes: ["docker"] }), "a")
      assert.strictEqual(yield* nodeOf("s6", { runtimes: ["docker", "process"] }), "a")
      yield* release("s1")
      assert.strictEqual(yield* nodeOf("s7", inUs), "b")
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("a placement skips drained and unconnected nodes, and a refusal gives the reason", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* hintOf("s0"), "No node has registered yet; start one with `muster node`.")
      yield* register("a")
      yield* register("b")
      yield* drain("a")
      yield* place("s1", memory(6000))
      const error = yield* Effect.flip(place("s2", memory(4096)))
      assert.strictEqual(error.detail, "no nodes available")
      assert.strictEqual(
        error.hint,
        "2 nodes: 1 drained (a), 1 without 4096 MiB of memory free (b; the most is 2192 MiB). Make room or add a node. Put a drained node back: PATCH /api/nodes/:node/drained."
      )
      yield* drain("a", false)
      assert.strictEqual(yield* nodeOf("s2", memory(4096)), "a")
      yield* (yield* NodeRegistry).disconnect(NodeId.make("a"), "a-boot")
      assert.include(yield* hintOf("s3", memory(4096)), "1 not connected")
      // The retries of a drain count as one refusal.
      yield* hintOf("s3", { ...memory(4096), isRetry: true })
      assert.deepStrictEqual(yield* (yield* LoadBalancer).placements, { placed: 2, refused: 3 })
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("a server that needs many ports goes to a node with enough ports on one address", () =>
    Effect.gen(function* () {
      yield* register("a", { allocations: [allocation({ ports: "1-3" })] })
      yield* register("b", { allocations: [allocation({ ports: "1-16" })] })
      yield* place("s1", { node_id: "b" })
      assert.strictEqual(yield* nodeOf("s2", { ports: 5 }), "b")
      assert.include(yield* hintOf("s3", { ports: 16 }), "2 without 16 free ports on one address")
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("a server with a reservation can be placed again", () =>
    Effect.gen(function* () {
      yield* register("a", { allocations: [allocation({ ports: "1" })] })
      yield* place("s1")
      assert.strictEqual((yield* place("s1")).allocations.default.port, 1)
      assert.strictEqual((yield* detail("a")).servers, 1)
    }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect.each<Strategy>(["spread", "binpack", "round-robin"])("the setting selects %s", (strategy) =>
    Effect.gen(function* () {
      yield* Effect.forEach(["a", "b"], (id) => register(id))
      const ids = ["s1", "s2", "s3", "s4"]
      const nodes = yield* Effect.forEach(ids, (id, i) => nodeOf(id, memory(i === 0 ? 2048 : 512)))
      const expected = { spread: "abbb", binpack: "aaaa", "round-robin": "abab" }
      assert.strictEqual(nodes.join(""), expected[strategy])
    }).pipe(Effect.provide(memoryNodes({ strategy })))
  )
})

describe("spec 2.4: unreachable nodes", () => {
  const called = (id: NodeId, unreachable: string | null) =>
    Effect.gen(function* () {
      const token = (yield* Fleet).get(id)?.record?.token ?? ""
      yield* (yield* NodeRegistry).setUnreachable(id, token, unreachable)
    })
  /** A client that calls nodes of other machines. */
  const callsOthers = Effect.flatMap(DaemonClient, (daemons) => daemons.elsewhere(() => undefined))

  it.effect("an unreachable node gets no server, also if it is named, and a refusal gives the reason", () =>
    Effect.gen(function* () {
      yield* callsOthers
      yield* register("a")
      yield* called(NodeId.make("a"), "ECONNREFUSED. Check it")
      assert.strictEqual(
        yield* hintOf("s1"),
        "1 node: 1 unreachable (a). `muster nodes list` has the reason of an unreachable node."
      )
      const named = yield* Effect.flip(place("s1", { node_id: "a" }))
      assert.strictEqual(named.detail, "node is not connected: a")
      assert.strictEqual(named.hint, "Its heartbeats arrive, but it cannot be called: ECONNREFUSED. Check it")
      yield* called(NodeId.make("a"), null)
      assert.strictEqual(yield* nodeOf("s1"), "a")
    }).pipe(Effect.scoped, Effect.provide(memoryNodes()))
  )

  it.effect("if no other node fits, a placement waits briefly for a node that has just registered", () =>
    Effect.gen(function* () {
      yield* callsOthers
      yield* register("full")
      yield* called(NodeId.make("full"), null)
      yield* register("new")
      assert.strictEqual(yield* nodeOf("s1"), "full")
      const waiting = [
        yield* Effect.forkChild(nodeOf("s2", { node_id: "new" }), { startImmediately: true }),
        yield* Effect.forkChild(nodeOf("s3", { except: ["full"] }), { startImmediately: true })
      ]
      const full = yield* Effect.flip(place("s4", { node_id: "full", ...memory(99_999) }))
      assert.strictEqual(full.detail, "node is full: full")
      assert.deepStrictEqual(
        waiting.map((fiber) => fiber.pollUnsafe()),
        [undefined, undefined]
      )
      yield* called(NodeId.make("new"), null)
      for (const fiber of waiting) assert.strictEqual(yield* Fiber.join(fiber), "new")

      yield* register("never")
      const refused = yield* Effect.forkChild(Effect.flip(place("s5", { node_id: "never" })), {
        startImmediately: true
      })
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(
        (yield* Fiber.join(refused)).hint,
        "Its heartbeats arrive, but it cannot be called: it was not called yet"
      )
      assert.deepStrictEqual(yield* (yield* LoadBalancer).placements, { placed: 3, refused: 2 })
    }).pipe(Effect.scoped, Effect.provide(memoryNodes()))
  )

  it.effect("a waiting placement can be interrupted", () =>
    Effect.gen(function* () {
      yield* callsOthers
      yield* register("new")
      // Uninterruptible, as in a creation, where placement and record are one step.
      const waiting = yield* Effect.forkChild(Effect.uninterruptible(place("s1")), { startImmediately: true })
      yield* Fiber.interrupt(waiting)
      yield* called(NodeId.make("new"), null)
      assert.strictEqual((yield* detail("new")).servers, 0)
    }).pipe(Effect.scoped, Effect.provide(memoryNodes()))
  )
})

describe("spec 2.4: a named node", () => {
  it.effect(
    "a named node is used if it is drained, in another location, or has a server of the blueprint",
    () =>
      Effect.gen(function* () {
        yield* register("a")
        yield* register("b")
        yield* drain("a")
        const rule = { node_id: "a", placement: { locations: ["us"], anti_affinity: true } }
        assert.strictEqual(yield* nodeOf("s1", rule), "a")
        assert.strictEqual(yield* nodeOf("s2", rule), "a")
      }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect("a named node is refused if it is unknown, not connected, full, or lacks the runtime", () =>
    Effect.gen(function* () {
      yield* register("a", { allocations: [allocation({ ports: "1-2" })] })
      const refusal = (fields: Partial<Plain<PlacementRequest>>) =>
        Effect.flip(place("s9", { node_id: "a", ...fields }))
      const unknown = yield* refusal({ node_id: "zz" })
      assert.strictEqual(unknown._tag, "NotFound")
      assert.strictEqual(unknown.detail, "node not found: zz")
      assert.strictEqual(unknown.hint, "GET /api/nodes lists what exists.")
      const full = yield* refusal(memory(9000))
      assert.strictEqual(full._tag, "Unavailable")
      assert.strictEqual(full.detail, "node is full: a")
      assert.strictEqual(
        full.hint,
        "It is without 9000 MiB of memory free: it has 8192 MiB; name another node or none."
      )
      assert.include((yield* refusal({ ports: 3 })).hint, "3 free ports on one address")
      assert.strictEqual(
        (yield* refusal({ runtimes: ["docker"] })).hint,
        "It offers process, the software needs docker; name another node or none."
      )
      yield* place("s1")
      yield* (yield* NodeRegistry).disconnect(NodeId.make("a"), "a-boot")
      assert.strictEqual((yield* refusal({})).detail, "node is not connected: a")
      yield* release("s1")
      assert.strictEqual((yield* refusal({}))._tag, "NotFound", "deregistered without servers")
    }).pipe(Effect.provide(memoryNodes()))
  )
})

describe("spec 3.3: 404 for an unknown node", () => {
  it.effect("the refusal of a node name gives the id of that node", () =>
    Effect.gen(function* () {
      yield* register("n1", { name: "alpha" })
      yield* register("n2", { name: "beta" })
      const named = yield* Effect.flip(place("s1", { node_id: "alpha" }))
      assert.strictEqual(named._tag, "NotFound")
      assert.strictEqual(named.detail, "node not found: alpha")
      assert.strictEqual(named.hint, "That is the name of a node: its id is n1.")
      assert.strictEqual((yield* Effect.flip(detail("alpha"))).hint, named.hint)
      yield* register("n3", { name: "alpha" })
      const several = yield* Effect.flip(place("s1", { node_id: "alpha" }))
      assert.strictEqual(several.hint, "That is the name of 2 nodes: their ids are n1, n3.")
      assert.strictEqual(yield* nodeOf("s1", { node_id: "n2" }), "n2")
    }).pipe(Effect.provide(memoryNodes()))
  )
})

describe("spec 9.6: no port is leaked or held twice", () => {
  it.effect(
    "the reservations of records are restored, also if the node registers later or with other ports",
    () =>
      Effect.gen(function* () {
        yield* restore(serverRecord("s1", "a", [25565, 40000]), serverRecord("s2", "a", [25566]))
        yield* register("a")
        const node = yield* detail("a")
        assert.strictEqual(node.servers, 2)
        assert.strictEqual(node.ports_free, 8)
        assert.strictEqual(node.committed.memory_bytes, 2 * GIB)
        assert.strictEqual(node.committed.cpu_threads, 3)
        assert.strictEqual((yield* place("s3")).allocations.default.port, 25567)
        yield* restore(serverRecord("s1", "a", [25565, 40000]))
        assert.strictEqual((yield* detail("a")).servers, 3)
        yield* release("s1")
        assert.strictEqual((yield* detail("a")).ports_free, 8)
      }).pipe(Effect.provide(memoryNodes()))
  )

  it.effect.each(["restore first", "release first"])(
    "a port that was placed twice is held until both servers release it: %s",
    (order) =>
      Effect.gen(function* () {
        yield* register("a", { allocations: [allocation({ ports: "1-2" })] })
        assert.strictEqual((yield* place("mine")).allocations.default.port, 1)
        const steps = [restore(serverRecord("theirs", "a", [1])), release("mine")]
        yield* Effect.all(order === "restore first" ? steps : steps.toReversed())
        assert.strictEqual((yield* place("mine")).allocations.default.port, 2)
        yield* Effect.flip(place("another"))
        yield* release("theirs")
        assert.strictEqual((yield* place("another")).allocations.default.port, 1)
      }).pipe(Effect.provide(memoryNodes()))
  )

  const anyNode = fc.constantFrom("a", "b", "c")
  const anyServer = fc.nat({ max: 14 }).map((n) => `s${n}`)
  const anyStep = fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        kind: fc.constant("place" as const),
        server: anyServer,
        node: fc.option(anyNode, { nil: undefined }),
        memory_limit: fc.integer({ min: 0, max: 4096 }),
        disk_space: fc.nat({ max: 400 }),
        cpu_limit: fc.double({ min: 0, max: 300, noNaN: true }),
        ports: fc.integer({ min: 1, max: 5 }),
        blueprint: fc.constantFrom("survival", "lobby"),
        anti_affinity: fc.boolean()
      })
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant("release" as const), server: anyServer }) },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constant("restore" as const), server: anyServer, node: anyNode })
    },
    {
      weight: 2,
      arbitrary: fc.record({
        kind: fc.constant("register" as const),
        node: anyNode,
        ports: fc.constantFrom("1-10", "5-14", "1-3,20-30")
      })
    },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constant("drain" as const), node: anyNode, drained: fc.boolean() })
    }
  )

  it("sums equal the placed servers, no port is held twice, and no node exceeds its capacity", () => {
    const strategies = fc.constantFrom<Strategy>("spread", "binpack", "round-robin")
    const property = fc.asyncProperty(fc.array(anyStep, { maxLength: 60 }), strategies, (steps, strategy) =>
      Effect.gen(function* () {
        const held = new Map<
          string,
          { node_id: string; request: PlacementRequest; allocations: Placement["allocations"] }
        >()
        const drained = new Set<string>()
        let lot = 50_000
        for (const step of steps) {
          if (step.kind === "register") {
            yield* register(step.node, { allocations: [allocation({ ports: step.ports })] })
          } else if (step.kind === "drain") {
            if (step.drained) drained.add(step.node)
            else drained.delete(step.node)
            const outcome = yield* Effect.result(drain(step.node, step.drained))
            if (outcome._tag === "Failure") drained.delete(step.node)
          } else if (step.kind === "release") {
            yield* release(step.server)
            held.delete(step.server)
          } else if (step.kind === "restore") {
            lot += 1
            const record = serverRecord(step.server, step.node, [lot])
            yield* restore(record)
            held.set(step.server, {
              node_id: step.node,
              allocations: record.allocations,
              request: request(step.server, { limits: record.definition.limits })
            })
          } else {
            const { memory_limit, disk_space, cpu_limit } = step
            const wanted = request(step.server, {
              limits: { memory_limit, disk_space, cpu_limit },
              ports: step.ports,
              blueprint_id: step.blueprint,
              ...(step.node === undefined ? {} : { node_id: step.node }),
              placement: { locations: [], anti_affinity: step.anti_affinity }
            })
            held.delete(step.server)
            const outcome = yield* Effect.result(place(step.server, wanted))
            if (outcome._tag === "Failure") continue
            const { node_id, allocations } = outcome.success
            const neighbours = [...held.values()].filter((other) => other.node_id === node_id)
            if (step.node === undefined) {
              assert.isFalse(drained.has(node_id))
              const twin = neighbours.some((other) => other.request.blueprint_id === step.blueprint)
              assert.isFalse(step.anti_affinity && twin)
            } else {
              assert.strictEqual<string>(node_id, step.node)
            }
            held.set(step.server, { ...outcome.success, request: wanted })
            const node = yield* detail(node_id)
            assert.isAtMost(node.committed.memory_bytes, node.capacity.memory_bytes)
            assert.isAtMost(node.committed.disk_bytes, node.capacity.disk_bytes)
            assert.strictEqual(Object.values(allocations.mappings).flat().length, step.ports)
          }
        }
        const registry = yield* NodeRegistry
        for (const { id } of yield* registry.list) {
          const mine = [...held.values()].filter((server) => server.node_id === id)
          const node = yield* registry.get(id)
          const sum = (of: (limits: PlacementRequest["limits"]) => number) =>
            mine.reduce((total, server) => total + of(server.request.limits), 0)
          assert.strictEqual(
            node.committed.memory_bytes,
            sum(({ memory_limit }) =>
              memory_limit === undefined || memory_limit === 0 ? 512 : memory_limit
            ) *
              1024 ** 2
          )
          assert.strictEqual(node.committed.disk_bytes, sum(({ disk_space = 0 }) => disk_space) * 1_000_000)
          const percent = sum(({ cpu_limit = 0 }) => (cpu_limit === 0 ? 0 : Math.max(1, cpu_limit)))
          assert.approximately(node.committed.cpu_threads, percent / 100, 0.001)
          assert.strictEqual(node.servers, mine.length)
          const ports = mine.flatMap((server) => Object.values(server.allocations.mappings).flat())
          assert.strictEqual(new Set(ports).size, ports.length)
        }
      }).pipe(Effect.provide(memoryNodes({ strategy })), Effect.scoped, Effect.runPromise)
    )
    return fc.assert(property, { numRuns: 150 })
  })
})
