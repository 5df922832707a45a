import { createHash } from "node:crypto"
import { assert, describe, it, vi } from "@effect/vitest"
import { Effect, Option } from "effect"
import { CurrentPrincipal, type Principal } from "../../../../src/controlPlane/http/Principal.ts"
import { type Include, includeOf, plain } from "../../../../src/controlPlane/servers/list/summary.ts"
import { allocations, record } from "../../../support/samples.ts"
import { FakeNodes } from "../support/FakeNodes.ts"
import { idsOf, listOf, makeHarness, request, runHarness } from "../support/harness.ts"

describe("design, Deployments: replicas are equal", () => {
  it.live("changes of another process appear, and its ports are reserved and released", () =>
    Effect.gen(function* () {
      const { start } = yield* makeHarness()
      const here = new FakeNodes({ id: "n1", ports: 10 })
      // The first is the leader.
      const two = yield* start()
      const one = yield* start({ connect: false, nodes: here })
      const { id } = yield* two.servers.create(request())
      yield* two.becomes(id, "offline")
      yield* two.settled
      // Any write of this process makes it read earlier writes of others.
      yield* here.publish("n1", "connected")
      const mine = yield* one.servers.create(request())
      assert.strictEqual(JSON.parse(mine.body).allocations.default.port, 25566)
      assert.deepStrictEqual((yield* idsOf(one)).toSorted(), [id, mine.id].toSorted())
      assert.strictEqual(yield* one.servers.status(id), "offline")
      assert.deepStrictEqual([...here.held.keys()].toSorted(), [id, mine.id].toSorted())
      yield* two.servers.remove(id, { force: false })
      yield* one.servers.remove(mine.id, { force: true })
      assert.deepStrictEqual(yield* idsOf(one), [])
      assert.strictEqual(here.held.size, 0)
    }).pipe(runHarness)
  )
})

describe("spec 6.3: a server is readable by its labels of now", () => {
  it.live("a server that another process has just given the labels of a key is found, as a new one is", () =>
    Effect.gen(function* () {
      const { start } = yield* makeHarness()
      const two = yield* start()
      const one = yield* start({ connect: false })
      const { id } = yield* two.servers.create(request())
      const caller: Principal = {
        key_id: "k",
        name: "k",
        scope: "Operator",
        restriction: { labels: { team: "a" } }
      }
      const seen = Effect.option(one.servers.get(id, plain)).pipe(
        Effect.map(Option.isSome),
        Effect.provideService(CurrentPrincipal, caller)
      )
      assert.isFalse(yield* seen)
      yield* two.servers.patch(id, { labels: { team: "a" } })
      assert.isTrue(yield* seen)
    }).pipe(runHarness)
  )
})

const idOf = (n: number) => createHash("sha1").update(String(n)).digest("hex")

describe("design, Reads: from memory", () => {
  it.live("a list of a thousand servers is complete, and its encoding lets other work run", () =>
    Effect.gen(function* () {
      const { start } = yield* makeHarness()
      const { store, repo, stop } = yield* start()
      const rows = Array.from({ length: 1000 }, (_, n) =>
        record({ id: idOf(n), allocations: allocations(20_000 + n) })
      )
      yield* store.write(Effect.forEach(rows, repo.insert, { discard: true }))
      yield* stop
      const { servers } = yield* start({ connect: false })
      assert.lengthOf(yield* listOf({ servers }, plain), 1000)
      assert.strictEqual((yield* servers.counts).get("offline"), 1000)
      // Each look at the clock takes as long as a slice.
      let now = performance.now()
      const clock = vi.spyOn(performance, "now").mockImplementation(() => (now += 10))
      yield* Effect.addFinalizer(() => Effect.sync(() => clock.mockRestore()))
      const turnsOf = Effect.fnUntraced(function* (include: Include) {
        let turns = 0
        const other = Effect.forever(Effect.flatMap(Effect.yieldNow, () => Effect.sync(() => (turns += 1))))
        yield* Effect.raceFirst(listOf({ servers }, include), other)
        return turns
      })
      assert.isAtLeast(yield* turnsOf(includeOf(["labels"])), 4, "the encoding lets other work run")
      const definition = yield* turnsOf(includeOf(["definition"]))
      assert.isAtLeast(definition, 25, "a comparison with today's definitions lets other work run")
    }).pipe(runHarness)
  )
})
