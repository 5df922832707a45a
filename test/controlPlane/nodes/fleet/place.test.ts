import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { NodeId } from "../../../../src/contract/domain/Id.ts"
import type { RuntimeKind } from "../../../../src/contract/domain/Node.ts"
import {
  byName,
  type Candidate,
  makeChooser,
  misfits,
  type Need,
  orderOf,
  type Strategy
} from "../../../../src/controlPlane/nodes/fleet/place.ts"

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

/** Candidates with a choice among them. */
const nodesBy = (strategy: Strategy) => {
  const chooser = makeChooser(strategy)
  const nodes = new Map<string, Candidate>()
  return {
    set: (node: Candidate) => nodes.set(node.id, node),
    delete: (id: string) => nodes.delete(id),
    choose: (wanted: Need) => chooser.choose(nodes.values(), wanted)
  }
}

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
  it.each(strategies)("%s: the first of the nodes without a misfit is chosen", (strategy) => {
    fc.assert(
      fc.property(fc.array(anyStep, { maxLength: 120 }), (steps) => {
        const nodes = nodesBy(strategy)
        const reference = naive(strategy)
        const fleet = new Map<string, Candidate>()
        for (const step of steps) {
          if (step.kind === "set") {
            nodes.set(step.node)
            fleet.set(step.node.id, step.node)
          } else if (step.kind === "delete") {
            nodes.delete(step.id)
            fleet.delete(step.id)
          } else {
            assert.strictEqual(nodes.choose(step.wanted)?.id, reference(fleet.values(), step.wanted)?.id)
          }
        }
      }),
      { numRuns: 300 }
    )
  })

  it("spread chooses the lowest share; ties are broken by fewer servers, name, id", () => {
    const nodes = nodesBy("spread")
    nodes.set(candidate("a", { share: 0.5 }))
    nodes.set(candidate("d", { share: 0.25, servers: 2, name: "x" }))
    assert.strictEqual(nodes.choose(need())?.id, "d")
    nodes.set(candidate("c", { share: 0.25, servers: 1, name: "y" }))
    assert.strictEqual(nodes.choose(need())?.id, "c")
    nodes.set(candidate("e", { share: 0.25, servers: 1, name: "x" }))
    assert.strictEqual(nodes.choose(need())?.id, "e")
    nodes.set(candidate("b", { share: 0.25, servers: 1, name: "x" }))
    assert.strictEqual(nodes.choose(need())?.id, "b")
  })

  it("binpack chooses the fullest node that has room", () => {
    const nodes = nodesBy("binpack")
    nodes.set(candidate("empty"))
    nodes.set(candidate("half", { share: 0.5, room: { memory_bytes: 5, disk_bytes: 10, ports: 10 } }))
    nodes.set(candidate("nearly", { share: 0.9, room: { memory_bytes: 1, disk_bytes: 10, ports: 10 } }))
    assert.strictEqual(nodes.choose(need({ memory_bytes: 1 }))?.id, "nearly")
    assert.strictEqual(nodes.choose(need({ memory_bytes: 2 }))?.id, "half")
    assert.strictEqual(nodes.choose(need({ memory_bytes: 6 }))?.id, "empty")
    assert.isUndefined(nodes.choose(need({ memory_bytes: 11 })))
  })

  it("round-robin keeps its order when nodes are added and removed", () => {
    const nodes = nodesBy("round-robin")
    for (const id of ["a", "c", "e"]) nodes.set(candidate(id))
    const next = () => nodes.choose(need())?.id
    assert.strictEqual(next(), "a")
    nodes.set(candidate("b"))
    assert.strictEqual(next(), "b")
    nodes.delete("b")
    assert.strictEqual(next(), "c")
    nodes.set(candidate("a", { share: 0.9, servers: 7 }))
    nodes.delete("e")
    nodes.set(candidate("d"))
    assert.strictEqual(next(), "d")
    assert.strictEqual(next(), "a")
  })

  it("round-robin keeps a separate position for each location", () => {
    const nodes = nodesBy("round-robin")
    for (const id of ["a", "c"]) nodes.set(candidate(id, { location: "eu" }))
    nodes.set(candidate("b", { location: "us" }))
    const from = (location: string) => nodes.choose(need({ locations: [location] }))?.id
    assert.deepStrictEqual(
      [from("eu"), from("us"), from("eu"), from("us"), from("eu")],
      ["a", "b", "c", "b", "a"]
    )
  })
})
