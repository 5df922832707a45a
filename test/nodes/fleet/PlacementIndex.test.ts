import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { NodeId } from "../../../src/domain/Id.ts"
import type { RuntimeKind } from "../../../src/domain/Node.ts"
import { misfits } from "../../../src/nodes/fleet/misfit.ts"
import { PlacementIndex } from "../../../src/nodes/fleet/PlacementIndex.ts"
import { byName, type Candidate, type Need, orderOf, type Strategy } from "../../../src/nodes/fleet/place.ts"
import { plain } from "../../support/ids.ts"

const strategies: ReadonlyArray<Strategy> = ["spread", "binpack", "round-robin"]
const kinds: ReadonlyArray<RuntimeKind> = ["docker", "process"]
const places = ["eu", "us", "asia"]

const candidate = (id: string, fields: Partial<Candidate> = {}): Candidate => ({
  id: NodeId.make(id),
  name: id,
  location: "eu",
  runtimes: ["process"],
  share: 0,
  servers: 0,
  room: { memory_bytes: 10, disk_bytes: 10, ports: 10 },
  blueprints: new Map(),
  ...fields
})

const need = (fields: Partial<Need> = {}): Need => ({
  memory_bytes: 1,
  disk_bytes: 0,
  ports: 1,
  runtimes: ["process"],
  locations: [],
  ...fields
})

const anyCandidate: fc.Arbitrary<Candidate> = fc.record({
  id: fc.integer({ min: 0, max: 40 }).map((n) => NodeId.make(`n${n}`)),
  name: fc.constantFrom("alpha", "beta", "gamma"),
  location: fc.constantFrom(...places),
  runtimes: fc.subarray([...kinds]),
  share: fc.integer({ min: 0, max: 8 }).map((n) => n / 8),
  servers: fc.nat({ max: 3 }),
  room: fc.record({
    memory_bytes: fc.integer({ min: -2, max: 8 }),
    disk_bytes: fc.nat({ max: 8 }),
    ports: fc.nat({ max: 3 })
  }),
  blueprints: fc
    .subarray(["survival", "lobby"])
    .map((blueprints) => new Map(blueprints.map((blueprint) => [blueprint, 1])))
})

const anyNeed: fc.Arbitrary<Need> = fc.record(
  {
    memory_bytes: fc.nat({ max: 8 }),
    disk_bytes: fc.nat({ max: 8 }),
    ports: fc.integer({ min: 1, max: 3 }),
    runtimes: fc.subarray([...kinds]),
    locations: fc.subarray(places),
    alone: fc.constantFrom("survival", "lobby")
  },
  { requiredKeys: ["memory_bytes", "disk_bytes", "ports", "runtimes", "locations"] }
)

const anyStep = fc.oneof(
  { weight: 3, arbitrary: anyCandidate.map((node) => ({ kind: "set" as const, node })) },
  { weight: 1, arbitrary: fc.nat({ max: 40 }).map((n) => ({ kind: "delete" as const, id: `n${n}` })) },
  { weight: 3, arbitrary: anyNeed.map((wanted) => ({ kind: "choose" as const, wanted })) }
)

/** The decision as specified: a search of all nodes. */
const naive = (strategy: Strategy) => {
  const turns = new Map<string, Candidate>()
  return (fleet: Iterable<Candidate>, wanted: Need): Candidate | undefined => {
    const fitting = [...fleet].filter((node) => misfits(node, wanted).length === 0)
    if (strategy !== "round-robin") return fitting.sort(orderOf(strategy))[0]
    const key = JSON.stringify([wanted.runtimes, wanted.locations])
    const last = turns.get(key)
    fitting.sort(byName)
    const chosen = fitting.find((node) => last !== undefined && byName(node, last) > 0) ?? fitting[0]
    if (chosen !== undefined) turns.set(key, chosen)
    return chosen
  }
}

describe("spec 2.4: the choice of a node", () => {
  it.each(strategies)("%s: the index chooses the same node as a search of all nodes", (strategy) => {
    fc.assert(
      fc.property(fc.array(anyStep, { maxLength: 120 }), (steps) => {
        const index = plain(new PlacementIndex(strategy))
        const reference = naive(strategy)
        const fleet = new Map<string, Candidate>()
        for (const step of steps) {
          if (step.kind === "set") {
            index.set(step.node)
            fleet.set(step.node.id, step.node)
          } else if (step.kind === "delete") {
            index.delete(step.id)
            fleet.delete(step.id)
          } else {
            assert.strictEqual(index.choose(step.wanted)?.id, reference(fleet.values(), step.wanted)?.id)
          }
          assert.strictEqual(index.size, fleet.size)
        }
      }),
      { numRuns: 300 }
    )
  })

  it("spread chooses the lowest share; ties are broken by fewer servers, name, id", () => {
    const index = new PlacementIndex("spread")
    index.set(candidate("a", { share: 0.5 }))
    index.set(candidate("d", { share: 0.25, servers: 2, name: "x" }))
    assert.strictEqual(index.choose(need())?.id, "d")
    index.set(candidate("c", { share: 0.25, servers: 1, name: "y" }))
    assert.strictEqual(index.choose(need())?.id, "c")
    index.set(candidate("e", { share: 0.25, servers: 1, name: "x" }))
    assert.strictEqual(index.choose(need())?.id, "e")
    index.set(candidate("b", { share: 0.25, servers: 1, name: "x" }))
    assert.strictEqual(index.choose(need())?.id, "b")
  })

  it("binpack chooses the fullest node that has room", () => {
    const index = plain(new PlacementIndex("binpack"))
    index.set(candidate("empty"))
    index.set(candidate("half", { share: 0.5, room: { memory_bytes: 5, disk_bytes: 10, ports: 10 } }))
    index.set(candidate("nearly", { share: 0.9, room: { memory_bytes: 1, disk_bytes: 10, ports: 10 } }))
    assert.strictEqual(index.choose(need({ memory_bytes: 1 }))?.id, "nearly")
    assert.strictEqual(index.choose(need({ memory_bytes: 2 }))?.id, "half")
    assert.strictEqual(index.choose(need({ memory_bytes: 6 }))?.id, "empty")
    assert.isUndefined(index.choose(need({ memory_bytes: 11 })))
  })

  it("round-robin keeps its order when nodes are added and removed", () => {
    const index = plain(new PlacementIndex("round-robin"))
    for (const id of ["a", "c", "e"]) index.set(candidate(id))
    const next = () => index.choose(need())?.id
    assert.strictEqual(next(), "a")
    index.set(candidate("b"))
    assert.strictEqual(next(), "b")
    index.delete("b")
    assert.strictEqual(next(), "c")
    index.set(candidate("a", { share: 0.9, servers: 7 }))
    index.delete("e")
    index.set(candidate("d"))
    assert.strictEqual(next(), "d")
    assert.strictEqual(next(), "a")
  })

  it("round-robin keeps a separate position for each location", () => {
    const index = new PlacementIndex("round-robin")
    for (const id of ["a", "c"]) index.set(candidate(id, { location: "eu" }))
    index.set(candidate("b", { location: "us" }))
    const from = (location: string) => index.choose(need({ locations: [location] }))?.id
    assert.deepStrictEqual(
      [from("eu"), from("us"), from("eu"), from("us"), from("eu")],
      ["a", "b", "c", "b", "a"]
    )
  })
})

describe("spec 2.4: a placement costs O(log nodes)", () => {
  /** Comparisons and capacity checks of placements on `count` nodes, in descending order. */
  const worst = (strategy: Strategy, count: number, roomy: (n: number) => boolean) => {
    let work = 0
    const order = orderOf(strategy)
    const index = new PlacementIndex(strategy, (a, b) => {
      work += 1
      return order(a, b)
    })
    const node = (n: number, servers: number) =>
      candidate(`n${String(n).padStart(6, "0")}`, {
        share: servers / 64,
        servers,
        room: { memory_bytes: roomy(n) ? 64 - servers : 0, disk_bytes: 10, ports: 10 }
      })
    for (let n = 0; n < count; n++) index.set(node(n, 0))
    let most = 0
    for (let i = 0; i < 300; i++) {
      work = 0
      const wanted: Need = {
        ...need(),
        get memory_bytes() {
          work += 1
          return 1
        }
      }
      const chosen = index.choose(wanted)
      assert.isDefined(chosen)
      index.set(node(Number(chosen?.id.slice(1)), (chosen?.servers ?? 0) + 1))
      most = Math.max(most, work)
    }
    return most
  }

  it.each(strategies)("%s: squaring the number of nodes at most doubles the work", (strategy) => {
    const small = worst(strategy, 100, () => true)
    const large = worst(strategy, 10_000, () => true)
    assert.isBelow(large, 2.2 * small)
    assert.isBelow(large, 20 * Math.log2(10_000))
  })

  it.each(strategies)("%s: full nodes are skipped as a group", (strategy) => {
    assert.isBelow(
      worst(strategy, 10_000, (n) => n % 50 === 49),
      20 * Math.log2(10_000)
    )
  })
})
