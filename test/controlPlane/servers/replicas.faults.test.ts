import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Context, Deferred, Effect, Exit, Latch, Layer, References, Result, Scope } from "effect"
import * as fc from "fast-check"
import { NodeId, type ServerId } from "../../../src/contract/domain/Id.ts"
import { committedMemoryBytes, diskLimitBytes } from "../../../src/contract/domain/Limits.ts"
import type { ServerRecord } from "../../../src/contract/domain/Server.ts"
import { ControlPlane } from "../../../src/contract/nodeApi/ControlPlaneApi.ts"
import { CurrentPrincipal, type Principal } from "../../../src/controlPlane/http/Principal.ts"
import { DaemonClient } from "../../../src/controlPlane/nodes/DaemonClient.ts"
import { Fleet } from "../../../src/controlPlane/nodes/fleet/Fleet.ts"
import { NodeRegistry } from "../../../src/controlPlane/nodes/NodeRegistry.ts"
import { layerServers } from "../../../src/controlPlane/servers/layerServers.ts"
import { plain } from "../../../src/controlPlane/servers/list/summary.ts"
import { ServerManager } from "../../../src/controlPlane/servers/ServerManager.ts"
import { MigrationRepo } from "../../../src/controlPlane/store/repos/MigrationRepo.ts"
import { ServerRepo } from "../../../src/controlPlane/store/repos/ServerRepo.ts"
import { Store } from "../../../src/controlPlane/store/Store.ts"
import { until } from "../../support/eventually.ts"
import { newPostgresDatabase, statementsOn } from "../../support/postgresDatabase.ts"
import { allocation, definition, registration } from "../../support/samples.ts"
import { nodesLayer } from "../nodes/support/fleet.ts"
import { storeAt } from "../store/support/database.ts"
import { FakeDaemon } from "./support/FakeDaemon.ts"
import { blueprintsOf, idsOf, listOf, request } from "./support/harness.ts"

const MIB = 1024 ** 2
const sizes = [256, 512, 1024] as const

const blueprints = {
  ...Object.fromEntries(
    sizes.map((memory_limit) => [
      `size-${memory_limit}`,
      definition({ blueprint_id: `size-${memory_limit}`, limits: { memory_limit, disk_space: 10 } })
    ])
  ),
  pair: definition({ blueprint_id: "pair", limits: { memory_limit: 256 }, ports: 2 }),
  lonely: definition({
    blueprint_id: "lonely",
    limits: { memory_limit: 256 },
    placement: { locations: [], anti_affinity: true }
  })
}
const names = Object.keys(blueprints)

/** A control plane without its transport. */
const startPlane = Effect.fnUntraced(function* (url: string) {
  const layer = layerServers.pipe(
    Layer.provideMerge(
      Layer.mergeAll(nodesLayer(), DaemonClient.layer, blueprintsOf(blueprints)).pipe(
        Layer.provideMerge(storeAt(url))
      )
    )
  )
  const context = yield* Layer.build(Layer.fresh(layer))
  return {
    control: Context.get(context, ControlPlane),
    daemons: Context.get(context, DaemonClient),
    fleet: Context.get(context, Fleet),
    moves: Context.get(context, MigrationRepo),
    registry: Context.get(context, NodeRegistry),
    repo: Context.get(context, ServerRepo),
    servers: Context.get(context, ServerManager),
    store: Context.get(context, Store)
  }
})
type Plane = Effect.Success<ReturnType<typeof startPlane>>

const onDatabase = <A, E>(test: (url: string) => Effect.Effect<A, E, Scope.Scope>) =>
  Effect.flatMap(newPostgresDatabase(), test).pipe(
    Effect.scoped,
    Effect.provide(NodeServices.layer),
    Effect.provideService(References.MinimumLogLevel, "None")
  )

// An alias: rows are compared with it, and an interface has no index signature.
type Held = {
  readonly servers: number
  readonly memory_bytes: number
  readonly disk_bytes: number
}

const sumOf = (records: ReadonlyArray<ServerRecord>): Held => ({
  servers: records.length,
  memory_bytes: records.reduce((sum, { definition }) => sum + committedMemoryBytes(definition.limits), 0),
  disk_bytes: records.reduce((sum, { definition }) => sum + diskLimitBytes(definition.limits), 0)
})

/** The reservations of a node in a control plane's memory. */
const inMemory = (plane: Plane, node_id: NodeId): Held => {
  const node = plane.fleet.get(node_id)
  return {
    servers: node?.servers ?? 0,
    memory_bytes: node?.committed.memory_bytes ?? 0,
    disk_bytes: node?.committed.disk_bytes ?? 0
  }
}

const inRows = (url: string, node_id: string) =>
  Effect.map(
    statementsOn(
      url,
      `SELECT COUNT(*)::int AS servers, COALESCE(SUM(memory_bytes), 0)::float8 AS memory_bytes,
        COALESCE(SUM(disk_bytes), 0)::float8 AS disk_bytes FROM reservations WHERE node_id = '${node_id}'`
    ),
    ([summed]) => summed?.[0]
  )

/** Each port of an address once. */
const portsOf = (records: ReadonlyArray<ServerRecord>) =>
  records.flatMap((record) =>
    Object.entries(record.allocations.mappings).flatMap(([address, ports]) =>
      ports.map((port) => `${record.node_id} ${address}:${port}`)
    )
  )

const nodeSizes = fc.record({
  slots: fc.integer({ min: 1, max: 12 }),
  ports: fc.oneof(fc.integer({ min: 1, max: 16 }), fc.constant(200)),
  /** Where the other begins to place ports: elsewhere, so that conflicts are not found by ports alone. */
  from: fc.constantFrom(0, 0.5)
})
const actions = fc.record({
  blueprint_id: fc.constantFrom(...names),
  /** After this many creations, the other replica deletes a server. */
  deletes: fc.option(fc.nat({ max: 20 }), { nil: undefined, freq: 4 })
})

describe("spec 2.5: two replicas place at the same time", () => {
  it("no node is overcommitted, no port is held twice, anti-affinity holds; sums in rows and memory are exact", () => {
    const property = fc.asyncProperty(
      fc.array(nodeSizes, { minLength: 1, maxLength: 3 }),
      fc.array(actions, { minLength: 20, maxLength: 90 }),
      (nodes, wanted) =>
        onDatabase((url) =>
          Effect.gen(function* () {
            const [one, other] = [yield* startPlane(url), yield* startPlane(url)]
            const capacities = nodes.map(({ slots }) => slots * 256 * MIB)
            for (const [n, { ports }] of nodes.entries()) {
              yield* one.registry.register(
                registration(`n${n}`, {
                  capacity: { memory_bytes: capacities[n] ?? 0, cpu_threads: 4, disk_bytes: 1e12 },
                  allocations: [allocation({ ports: `30000-${30_000 + ports - 1}` })]
                })
              )
            }
            yield* until(
              "the other knows the nodes",
              Effect.sync(() => nodes.every((_, n) => other.registry.isConnected(NodeId.make(`n${n}`))))
            )
            for (const [n, { from }] of nodes.entries())
              other.fleet.get(NodeId.make(`n${n}`))?.ports.scatter(from)
            const created: Array<ServerId> = []
            const codes: Array<string> = []
            yield* Effect.forEach(
              wanted,
              ({ blueprint_id, deletes }, i) =>
                Effect.gen(function* () {
                  const [here, there] = i % 2 === 0 ? [one, other] : [other, one]
                  const outcome = yield* Effect.result(here.servers.create(request({ blueprint_id })))
                  if (outcome._tag === "Failure") codes.push(outcome.failure.code)
                  else created.push(outcome.success.id)
                  const doomed = deletes === undefined ? undefined : created.at(-1 - deletes)
                  // The deletion may find that another replica has deleted it.
                  if (doomed !== undefined)
                    yield* Effect.ignore(there.servers.remove(doomed, { force: true }))
                }),
              { concurrency: 16, discard: true }
            )
            assert.isTrue(codes.every((code) => code === "503"))

            const records = yield* one.store.read(one.repo.all)
            const ports = portsOf(records)
            assert.strictEqual(new Set(ports).size, ports.length)
            for (const [n, capacity] of capacities.entries()) {
              const id = NodeId.make(`n${n}`)
              const here = records.filter((record) => record.node_id === id)
              const held = sumOf(here)
              assert.isAtMost(held.memory_bytes, capacity)
              assert.isAtMost(here.filter((record) => record.blueprint_id === "lonely").length, 1)
              assert.deepStrictEqual(yield* inRows(url, id), held)
              for (const plane of [one, other]) {
                yield* until(
                  `${id} in memory is as in the rows`,
                  Effect.sync(() => JSON.stringify(inMemory(plane, id)) === JSON.stringify(held))
                )
              }
              assert.deepStrictEqual(yield* one.registry.get(id), yield* other.registry.get(id))
            }
            const lists = yield* Effect.forEach([one, other], (plane) => listOf(plane, plain))
            assert.deepStrictEqual(lists[0], lists[1])

            // No refusal is permanent: free capacity is placed until none is left.
            for (let i = 0; ; i++) {
              const plane = i % 2 === 0 ? one : other
              const more = yield* Effect.result(plane.servers.create(request({ blueprint_id: "size-256" })))
              if (more._tag === "Failure") break
            }
            const full = yield* one.store.read(one.repo.all)
            for (const [n, { ports: offered }] of nodes.entries()) {
              const here = full.filter((record) => record.node_id === `n${n}`)
              const room = (capacities[n] ?? 0) - sumOf(here).memory_bytes
              assert.isTrue(room < 256 * MIB || portsOf(here).length === offered)
            }
          })
        ).pipe(Effect.runPromise)
    )
    return fc.assert(property, { numRuns: 12, endOnFailure: true })
  }, 120_000)
})

/** Two control planes that both reach one daemon; the first is the leader. */
const withDaemon = Effect.fnUntraced(function* (url: string) {
  const scope = yield* Scope.make()
  const one = yield* Scope.provide(startPlane(url), scope)
  const other = yield* startPlane(url)
  const daemon = new FakeDaemon("n1")
  yield* one.daemons.attach(NodeId.make("n1"), daemon.daemon)
  yield* other.daemons.attach(NodeId.make("n1"), daemon.daemon)
  const control = {
    ...one.control,
    // The registration of the fake daemon, with capacity and ports.
    register: (registered: typeof daemon.registration) =>
      one.control.register({
        ...registration("n1"),
        boot_id: registered.boot_id,
        servers: registered.servers
      })
  }
  yield* daemon.serve(control)
  yield* until(
    "the other knows the node",
    Effect.sync(() => other.registry.isConnected(NodeId.make("n1")))
  )
  return { one, other, daemon, end: Scope.close(scope, Exit.void) }
})
const small = request({ blueprint_id: "size-256" })

describe("design: any replica takes any request", () => {
  it.live("a replica accepts requests for a server that another has just created or deleted", () =>
    onDatabase((url) =>
      Effect.gen(function* () {
        const { one, other } = yield* withDaemon(url)
        for (let i = 0; i < 10; i++) {
          const [here, there] = i % 2 === 0 ? [one, other] : [other, one]
          const { body, id } = yield* here.servers.create(small)
          assert.strictEqual((yield* there.servers.get(id, plain)).body, body)
          yield* there.servers.status(id)
          yield* until(
            "it is installed",
            Effect.map(here.servers.status(id), (status) => status === "offline")
          )
          yield* there.servers.remove(id, { force: false })
          assert.strictEqual((yield* Effect.flip(here.servers.remove(id, { force: false }))).code, "404")
        }
      })
    )
  )

  it.live("spec 6.4: two replicas create no more servers than the quotas of a key allow", () =>
    onDatabase((url) =>
      Effect.gen(function* () {
        const { one, other } = yield* withDaemon(url)
        for (const [quota, most] of [
          [{ key_id: "key_a", max_servers: 5 }, 5],
          [{ key_id: "key_b", max_memory: 1000 }, 3]
        ] as const) {
          const caller: Principal = { key_id: quota.key_id, name: "a", scope: "Operator", quotas: [quota] }
          const created = yield* Effect.forEach(
            Array.from({ length: 10 }, (_, i) => (i % 2 === 0 ? one : other)),
            (plane) =>
              plane.servers.create(small).pipe(
                // One replica may hold the lock for longer than the other waits, or take its ports at each attempt.
                Effect.retry({ while: ({ code }) => code === "503" }),
                Effect.result
              ),
            { concurrency: "unbounded" }
          ).pipe(Effect.provideService(CurrentPrincipal, caller))
          const refused = created.flatMap((result) => (Result.isFailure(result) ? [result.failure] : []))
          assert.strictEqual(refused.length, 10 - most)
          for (const { code, detail } of refused) {
            assert.strictEqual(code, "403")
            assert.match(detail, /^quota of the API key: at most /)
          }
        }
      })
    )
  )

  it.live("a change of one replica appears on all without a request", () =>
    onDatabase((url) =>
      Effect.gen(function* () {
        const { one, other } = yield* withDaemon(url)
        const times: Array<number> = []
        for (let i = 0; i < 20; i++) {
          const [here, there] = i % 2 === 0 ? [one, other] : [other, one]
          const { id } = yield* here.servers.create(small)
          const written = performance.now()
          yield* until(
            "the other lists it",
            Effect.map(idsOf(there), (ids) => ids.includes(id))
          )
          times.push(Math.round(performance.now() - written))
          yield* there.servers.remove(id, { force: true })
        }
        yield* Effect.logInfo(`listed by the other after so many ms: ${times.join(" ")}`).pipe(
          Effect.provideService(References.MinimumLogLevel, "Info")
        )
      })
    )
  )

  it.live("a creation on its way to the node does not arrive after a deletion at another replica", () =>
    onDatabase((url) =>
      Effect.gen(function* () {
        const { daemon, one, other } = yield* withDaemon(url)
        const sent = yield* Deferred.make<void>()
        const goOn = Latch.makeUnsafe(false)
        let steps = 0
        daemon.step = Effect.suspend(() => {
          steps += 1
          return steps === 1 ? Effect.andThen(Deferred.succeed(sent, undefined), goOn.await) : Effect.void
        })
        const { id } = yield* one.servers.create(small)
        yield* Deferred.await(sent)
        yield* other.servers.remove(id, { force: false })
        goOn.openUnsafe()
        yield* until(
          "the creation has arrived",
          Effect.sync(() => daemon.calls.includes(`create ${id}`) && steps >= 4)
        )
        assert.strictEqual(daemon.instances.size, 0)
        assert.deepStrictEqual(yield* one.store.read(one.repo.all), [])
      })
    )
  )

  it.live("the current leader deletes the instance left by a forced deletion", () =>
    onDatabase((url) =>
      Effect.gen(function* () {
        const { daemon, end, one, other } = yield* withDaemon(url)
        const { id } = yield* one.servers.create(small)
        yield* until(
          "the node has it",
          Effect.sync(() => daemon.instances.has(id))
        )
        daemon.fault("remove", ...Array.from({ length: 100_000 }, () => "request-lost" as const))
        yield* other.servers.remove(id, { force: true })
        const calls = () => daemon.calls.filter((call) => call === `remove ${id}`).length
        yield* until(
          "the node is asked again",
          Effect.sync(() => calls() > 3)
        )
        yield* end
        assert.isTrue(daemon.instances.has(id))
        daemon.faults.clear()
        yield* until(
          "the node has deleted it, and nothing is left to do",
          Effect.map(
            other.store.read(other.moves.deletions),
            (left) => left.length === 0 && !daemon.instances.has(id)
          )
        )
      })
    )
  )

  it.live("the leader completes a deletion that a killed replica has begun", () =>
    onDatabase((url) =>
      Effect.gen(function* () {
        const { daemon, end, one, other } = yield* withDaemon(url)
        const { id } = yield* one.servers.create(small)
        yield* until(
          "the node has it",
          Effect.sync(() => daemon.instances.has(id))
        )
        yield* one.store.write(one.repo.setRemoving(id, true))
        yield* end
        yield* until(
          "it is gone",
          Effect.map(
            other.store.read(other.repo.all),
            (all) => all.length === 0 && daemon.instances.size === 0
          )
        )
      })
    )
  )
})
