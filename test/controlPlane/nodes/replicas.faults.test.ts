import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Scope, Stream } from "effect"
import { ServerId } from "../../../src/contract/domain/Id.ts"
import { NodeRegistry } from "../../../src/controlPlane/nodes/NodeRegistry.ts"
import { NodeRepo } from "../../../src/controlPlane/store/repos/NodeRepo.ts"
import { ServerRepo } from "../../../src/controlPlane/store/repos/ServerRepo.ts"
import { Store } from "../../../src/controlPlane/store/Store.ts"
import { until } from "../../support/eventually.ts"
import { plain } from "../../support/ids.ts"
import { startPostgres } from "../../support/postgres.ts"
import { newPostgresDatabase } from "../../support/postgresDatabase.ts"
import { freshSeed, seeded } from "../../support/random.ts"
import { registration, server } from "../../support/samples.ts"
import { storeAt } from "../store/support/database.ts"
import { nodesLayer } from "./support/fleet.ts"

const times = { heartbeatTimeout: "2 seconds", nodeLostAfter: "4 seconds" } as const
const BEAT = "150 millis"
const seed = freshSeed()

const beat = (boot_id: string) => ({
  boot_id,
  load: 0.5,
  memory_used_bytes: 1_000,
  disk_used_bytes: 2_000
})

/** The nodes of one of several services on a database, and the node changes that it publishes. */
const startReplica = Effect.fnUntraced(function* (
  url: string,
  options: Parameters<typeof storeAt>[1] & Parameters<typeof nodesLayer>[0] = {}
) {
  const context = yield* Layer.build(
    Layer.fresh(nodesLayer({ ...times, ...options })).pipe(
      Layer.provideMerge(Layer.fresh(storeAt(url, options)))
    )
  )
  const registry = plain(Context.get(context, NodeRegistry))
  const published: Array<string> = []
  yield* registry.changes.pipe(
    Stream.runForEach(({ kind, node_id }) => Effect.sync(() => published.push(`${node_id} ${kind}`))),
    Effect.forkScoped({ startImmediately: true })
  )
  return {
    registry,
    store: Context.get(context, Store),
    nodes: Context.get(context, NodeRepo),
    servers: Context.get(context, ServerRepo),
    published,
    of: (node_id: string) => published.filter((line) => line.startsWith(`${node_id} `))
  }
})
type Replica = Effect.Success<ReturnType<typeof startReplica>>

const onDatabase = <A, E>(test: (url: string) => Effect.Effect<A, E, Scope.Scope>) =>
  Effect.flatMap(newPostgresDatabase(), test).pipe(Effect.scoped, Effect.provide(NodeServices.layer))

const everywhere = (what: string, replicas: ReadonlyArray<Replica>, look: (replica: Replica) => boolean) =>
  until(
    what,
    Effect.sync(() => replicas.every(look))
  )

/** Waits until the replicas have shared that many further heartbeats of the node. */
const heartbeatsArrive = Effect.fnUntraced(function* (
  { nodes, store }: Replica,
  node_id: string,
  times: number
) {
  const beats = Effect.map(
    store.read(nodes.heartbeats),
    (rows) => rows.find((row) => row.node_id === node_id)?.beats ?? 0
  )
  const before = yield* Effect.orDie(beats)
  yield* until(
    `${node_id} is heard`,
    Effect.map(beats, (now) => now >= before + times)
  )
})

/** A daemon whose heartbeats alternate between replicas, and which registers when asked. */
const daemon = Effect.fnUntraced(function* (id: string, replicas: ReadonlyArray<Replica>, boot_id = "boot") {
  const random = seeded(seed + id.length)
  const any = () => replicas[random.below(replicas.length)] ?? replicas[0]
  let registrations = 0
  const register = Effect.suspend(() => {
    registrations += 1
    return any()?.registry.register(registration(id, { boot_id })) ?? Effect.die("no replica")
  })
  yield* register
  yield* Effect.suspend(() => any()?.registry.heartbeat(id, beat(boot_id)) ?? Effect.void).pipe(
    Effect.catchTag("RegistrationRequired", () => Effect.asVoid(register)),
    Effect.catchTag("Unavailable", () => Effect.void),
    Effect.orDie,
    Effect.andThen(Effect.sleep(BEAT)),
    Effect.forever,
    Effect.forkScoped
  )
  return { registrations: () => registrations }
})

describe("design: replicas have the same nodes", () => {
  it.live("a registration at one replica is published once on all, also on a replica that starts later", () =>
    onDatabase((url) =>
      Effect.gen(function* () {
        const [one, other] = [yield* startReplica(url), yield* startReplica(url)]
        for (const id of ["n1", "n2", "n3"]) yield* one.registry.register(registration(id))
        yield* everywhere(
          "every change is published",
          [one, other],
          ({ published }) => published.length === 3
        )
        assert.deepStrictEqual(one.published, ["n1 connected", "n2 connected", "n3 connected"])
        assert.deepStrictEqual(other.published, one.published)
        assert.deepStrictEqual(yield* other.registry.get("n1"), yield* one.registry.get("n1"))
        const third = yield* startReplica(url)
        assert.deepStrictEqual(yield* third.registry.list, yield* one.registry.list)
        assert.isTrue(third.registry.isConnected("n2"))
      })
    )
  )

  it.live(
    "a heartbeat, report or deregistration is accepted although another replica has just registered the node",
    () =>
      onDatabase((url) =>
        Effect.gen(function* () {
          const [one, other] = [yield* startReplica(url), yield* startReplica(url)]
          for (let i = 0; i < 20; i++) {
            const [here, there] = i % 2 === 0 ? [one, other] : [other, one]
            const id = `n${i % 4}`
            yield* here.registry.register(registration(id, { boot_id: `boot-${i}` }))
            yield* there.registry.heartbeat(id, beat(`boot-${i}`))
            yield* there.registry.checkBoot(id, `boot-${i}`)
            if (i % 5 === 0) yield* there.registry.disconnect(id, `boot-${i}`)
          }
        })
      )
  )

  it.live(
    "if two boots register at two replicas at once, one is valid everywhere and the other nowhere",
    () =>
      onDatabase((url) =>
        Effect.gen(function* () {
          const replicas = [yield* startReplica(url), yield* startReplica(url)]
          for (let round = 0; round < 10; round++) {
            const boots = [`a${round}`, `b${round}`]
            const answers = yield* Effect.forEach(
              replicas,
              ({ registry }, i) => registry.register(registration("n1", { boot_id: boots[i] ?? "" })),
              { concurrency: "unbounded" }
            )
            assert.notStrictEqual(answers[0]?.token, answers[1]?.token)
            const counts = (replica: Replica) =>
              Effect.forEach(boots, (boot) => Effect.isSuccess(replica.registry.checkBoot("n1", boot)))
            yield* everywhere(
              "both changes are published on both",
              replicas,
              ({ published }) => published.length === 2 * (round + 1)
            )
            const [here, there] = yield* Effect.forEach(replicas, counts)
            assert.deepStrictEqual(here, there)
            assert.strictEqual(here?.filter((it) => it).length, 1)
            for (const replica of replicas) {
              const beats = yield* Effect.forEach(boots, (boot) =>
                Effect.isSuccess(replica.registry.heartbeat("n1", beat(boot)))
              )
              assert.deepStrictEqual(beats, here)
            }
          }
        })
      )
  )

  it.live("all replicas see a node as drained, deregistered or removed; drained survives the next boot", () =>
    onDatabase((url) =>
      Effect.gen(function* () {
        const [one, other] = [yield* startReplica(url), yield* startReplica(url)]
        yield* one.registry.register(registration("n1"))
        yield* other.registry.setDrained("n1", true)
        yield* one.registry.register(registration("n1", { boot_id: "second" }))
        assert.isTrue((yield* one.registry.get("n1")).drained)
        yield* other.registry.disconnect("n1", "second")
        yield* everywhere("it is gone", [one, other], ({ registry }) => !registry.isConnected("n1"))
        yield* until(
          "no replica lists it",
          Effect.map(
            Effect.all([one.registry.list, other.registry.list]),
            (lists) => lists.flat().length === 0
          )
        )
        yield* one.registry.register(registration("n1", { boot_id: "third" }))
        assert.isTrue((yield* one.registry.get("n1")).drained)
        yield* one.store.write(one.servers.insert(server("srv_1", [25_565], "n1")))
        const conflict = yield* Effect.flip(other.registry.remove("n1"))
        assert.strictEqual(conflict.detail, "node owns a server: n1")
        assert.isTrue(other.registry.isConnected("n1"))
        yield* one.store.write(one.servers.remove(ServerId.make("srv_1")))
        yield* other.registry.remove("n1")
        yield* everywhere(
          "no replica knows it",
          [one, other],
          ({ registry }) => registry.nameOf("n1") === "n1" && !registry.isConnected("n1")
        )
        assert.strictEqual(
          (yield* Effect.flip(one.registry.heartbeat("n1", beat("third"))))._tag,
          "RegistrationRequired"
        )
        assert.strictEqual((yield* Effect.flip(one.registry.remove("n1")))._tag, "NotFound")
      })
    )
  )

  it.live("an invalid token makes the node register again, whichever replica detects it", () =>
    onDatabase((url) =>
      Effect.gen(function* () {
        const [one, other] = [yield* startReplica(url), yield* startReplica(url)]
        const { token } = yield* one.registry.register(registration("n1"))
        yield* other.registry.revoke("n1", token)
        yield* everywhere("it is out", [one, other], ({ registry }) => !registry.isConnected("n1"))
        yield* Effect.flip(one.registry.heartbeat("n1", beat("n1-boot")))
        yield* one.registry.register(registration("n1"))
        yield* other.registry.revoke("n1", token)
        yield* other.registry.heartbeat("n1", beat("n1-boot"))
        yield* one.registry.heartbeat("n1", beat("n1-boot"))
      })
    )
  )
})

describe("spec 9.1: heartbeats reach any replica", () => {
  it.live(
    `a node with heartbeats at any replica is lost nowhere; a node without is lost and given up once on each (MUSTER_TEST_SEED=${seed})`,
    () =>
      onDatabase((url) =>
        Effect.gen(function* () {
          const first = yield* startReplica(url)
          const replicas = [first, yield* startReplica(url), yield* startReplica(url)]
          const steady = yield* daemon("steady", replicas)
          const scope = yield* Scope.make()
          yield* Scope.provide(daemon("passing", replicas), scope)
          // Longer than the timeout of a silent node.
          yield* heartbeatsArrive(first, "steady", 25)
          for (const { published } of replicas) {
            assert.sameMembers(published, ["steady connected", "passing connected"])
          }
          yield* Scope.close(scope, Exit.void)
          yield* everywhere("lost", replicas, ({ registry }) => !registry.isConnected("passing"))
          yield* everywhere("given up", replicas, ({ of }) => of("passing").length === 3)
          yield* heartbeatsArrive(first, "steady", 5)
          for (const { of, registry } of replicas) {
            assert.deepStrictEqual(of("passing"), ["passing connected", "passing lost", "passing given-up"])
            assert.deepStrictEqual(of("steady"), ["steady connected"])
            assert.isTrue(registry.isConnected("steady"))
          }
          assert.strictEqual(steady.registrations(), 1)
          // A load that one replica receives is shown by all.
          yield* first.registry.heartbeat("steady", beat("boot"))
          yield* Effect.forEach(replicas, ({ registry }) =>
            until(
              "its use is known",
              Effect.map(registry.get("steady"), ({ usage }) => usage?.memory_bytes === 1_000)
            )
          )
          const before = Date.now()
          yield* Effect.forEach(replicas, ({ registry }) =>
            until(
              "it was seen since",
              Effect.map(registry.get("steady"), (it) => Date.parse(it.last_seen_at ?? "") > before)
            )
          )
        })
      ),
    60_000
  )

  it.live(
    "a new leader continues the timeouts of silent and of lost nodes",
    () =>
      onDatabase((url) =>
        Effect.gen(function* () {
          const scope = yield* Scope.make()
          const one = yield* Scope.provide(startReplica(url), scope)
          const other = yield* startReplica(url, { nodeLostAfter: "8 seconds" })
          yield* daemon("steady", [other])
          yield* one.registry.register(registration("lost"))
          yield* everywhere("it is lost", [one, other], ({ of }) => of("lost").length === 2)
          yield* one.registry.register(registration("silent"))
          yield* Scope.close(scope, Exit.void)
          yield* everywhere(
            "both are given up",
            [other],
            ({ of }) => of("lost").length === 3 && of("silent").length === 3
          )
          assert.deepStrictEqual(other.of("lost"), ["lost connected", "lost lost", "lost given-up"])
          assert.deepStrictEqual(other.of("silent"), ["silent connected", "silent lost", "silent given-up"])
          assert.deepStrictEqual(other.of("steady"), ["steady connected"])
        })
      ),
    60_000
  )

  it.live(
    "while the database is away, heartbeats are accepted and no node is lost; afterwards the state is unchanged",
    () =>
      Effect.gen(function* () {
        const postgres = yield* startPostgres()
        const url = yield* newPostgresDatabase(postgres)
        const first = yield* startReplica(url, { answerMillis: 650 })
        const replicas = [first, yield* startReplica(url, { answerMillis: 650 })]
        const steady = yield* daemon("steady", replicas)
        yield* everywhere("the change is published", replicas, ({ published }) => published.length === 1)
        yield* postgres.freeze
        // Longer than the timeout of a silent node.
        for (let n = 0; n < 40; n++) {
          for (const { registry } of replicas) yield* registry.heartbeat("steady", beat("boot"))
          yield* Effect.sleep("100 millis")
        }
        yield* postgres.thaw
        yield* Effect.forEach(replicas, ({ registry }) =>
          until("writes are made", Effect.isSuccess(registry.setDrained("steady", true)))
        )
        yield* heartbeatsArrive(first, "steady", 15)
        for (const { registry, published } of replicas) {
          assert.deepStrictEqual(published, ["steady connected"])
          assert.isTrue(registry.isConnected("steady"))
        }
        assert.strictEqual(steady.registrations(), 1)
      }).pipe(Effect.scoped, Effect.provide(NodeServices.layer)),
    60_000
  )
})
