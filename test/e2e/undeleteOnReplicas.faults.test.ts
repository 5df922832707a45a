import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Latch } from "effect"
import { blueprintFile, definitions, softwareFile } from "../support/definitions.ts"
import { nodeIs } from "../support/nodes.ts"
import { nodeOf, replicaSet } from "../support/replicaSet.ts"
import { becomes, expectStatus, powered, running } from "../support/servers.ts"

const files = {
  software: { "game.yml": softwareFile("game") },
  blueprints: { "kept.yml": blueprintFile("kept", "game") }
}
const ROUNDS = 12

describe("spec 3.19: undeletions of one server at two replicas", () => {
  it.live(
    "bring it back once: its node has it, with the ports of its record",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const set = yield* replicaSet(env)
        const [one, other] = [yield* set.start(), yield* set.start()]
        const { brain } = yield* nodeOf(set, one, "n1", "24500-24529")
        yield* nodeIs(other, "n1", true)
        for (let round = 0; round < ROUNDS; round++) {
          const id = yield* running(one, "kept")
          yield* expectStatus(one, 200, "DELETE", `/api/servers/${id}`)
          assert.isTrue(brain.kept.has(id))
          const undelete = `/api/servers/${id}/undelete`
          const answers = yield* Effect.all(
            [one, other, one, other].map((api) => api.request("POST", undelete)),
            { concurrency: "unbounded" }
          )
          const statuses = answers.map(({ status }) => status).toSorted()
          assert.deepStrictEqual(statuses, [202, 404, 404, 404], answers.map(({ text }) => text).join("\n"))
          const { json } = yield* expectStatus(one, 200, "GET", `/api/servers/${id}`)
          assert.deepStrictEqual(brain.instances.get(id)?.spec.allocations, json.allocations)
          assert.isFalse(brain.kept.has(id))
        }
      }).pipe(Effect.scoped),
    180_000
  )

  it.live(
    "the later one does not stop a server that was started since",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const set = yield* replicaSet(env)
        const [one, other] = [yield* set.start(), yield* set.start()]
        const { brain, sentReports } = yield* nodeOf(set, one, "n1", "24530-24559")
        yield* nodeIs(other, "n1", true)
        const id = yield* running(one, "kept")
        yield* expectStatus(one, 200, "DELETE", `/api/servers/${id}`)
        const undelete = `/api/servers/${id}/undelete`
        const [asks, late] = [yield* Latch.make(), yield* Latch.make()]
        // The first call to the node is the one of the later replica.
        brain.step = Effect.suspend(() => {
          brain.step = Effect.void
          return Effect.andThen(asks.open, late.await)
        })
        const later = yield* Effect.forkScoped(other.request("POST", undelete))
        yield* asks.await
        yield* expectStatus(one, 202, "POST", undelete)
        yield* powered(one, id, "start")
        yield* becomes(one, id, "running")
        const reports = sentReports(id)
        yield* late.open
        assert.strictEqual((yield* Fiber.join(later)).status, 404)
        assert.strictEqual(brain.instances.get(id)?.status, "running")
        assert.deepStrictEqual(sentReports(id), reports)
        yield* becomes(other, id, "running")
      }).pipe(Effect.scoped),
    180_000
  )

  it.live(
    "the later one does not stop a server that has got other ports since",
    () =>
      Effect.gen(function* () {
        const { env } = yield* definitions(files)
        const set = yield* replicaSet(env)
        const [one, other] = [yield* set.start(), yield* set.start()]
        const { brain, sentReports } = yield* nodeOf(set, one, "n1", "24560-24561")
        yield* nodeIs(other, "n1", true)
        const id = yield* running(one, "kept")
        const path = `/api/servers/${id}`
        const { port } = (yield* expectStatus(one, 200, "GET", path)).json.allocations.default
        yield* expectStatus(one, 200, "DELETE", path)
        const [asks, late] = [yield* Latch.make(), yield* Latch.make()]
        // The first call to the node is the one of the later replica, with the old port.
        brain.step = Effect.suspend(() => {
          brain.step = Effect.void
          return Effect.andThen(asks.open, late.await)
        })
        const later = yield* Effect.forkScoped(other.request("POST", `${path}/undelete`))
        yield* asks.await
        // Another server takes the old port.
        const taking = [yield* running(one, "kept"), yield* running(one, "kept")]
        for (const taker of taking) {
          const { json } = yield* expectStatus(one, 200, "GET", `/api/servers/${taker}`)
          if (json.allocations.default.port !== port)
            yield* expectStatus(one, 200, "DELETE", `/api/servers/${taker}?purge=true`)
        }
        const { json } = yield* expectStatus(one, 202, "POST", `${path}/undelete`)
        const to = port === 24560 ? 24561 : 24560
        assert.deepStrictEqual(json.ports_changed, [{ from: `127.0.0.1:${port}`, to: `127.0.0.1:${to}` }])
        yield* powered(one, id, "start")
        yield* becomes(one, id, "running")
        const reports = sentReports(id)
        yield* late.open
        assert.strictEqual((yield* Fiber.join(later)).status, 404)
        assert.strictEqual(brain.instances.get(id)?.status, "running")
        assert.strictEqual(brain.instances.get(id)?.spec.allocations.default.port, to)
        assert.deepStrictEqual(sentReports(id), reports)
        yield* becomes(other, id, "running")
      }).pipe(Effect.scoped),
    180_000
  )
})
