import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { seeded } from "../support/random.ts"
import { faultKinds, schedule, targetName } from "./schedule.ts"

const counts = { replicas: 3, nodes: 4 }

describe("model: the schedule of faults", () => {
  it("the same seed gives the same schedule", () => {
    fc.assert(
      fc.property(fc.nat(), (seed) => {
        assert.deepStrictEqual(schedule(seeded(seed), 35_000, counts), schedule(seeded(seed), 35_000, counts))
      })
    )
  })

  it("the schedule heals every fault at its end and never applies a fault twice at a time", () => {
    fc.assert(
      fc.property(fc.nat(), fc.integer({ min: 1_000, max: 600_000 }), (seed, millis) => {
        const healed = new Map<string, number>()
        for (const fault of schedule(seeded(seed), millis, counts)) {
          const name = targetName(fault)
          assert.isAtLeast(fault.at, healed.get(name) ?? 0)
          assert.isAtMost(fault.at + fault.lasts, millis)
          healed.set(name, fault.at + fault.lasts)
        }
      })
    )
  })

  it("ten minutes contain every fault at every place", () => {
    fc.assert(
      fc.property(fc.nat(), (seed) => {
        const plan = schedule(seeded(seed), 600_000, counts)
        assert.deepStrictEqual(
          [...new Set(plan.map(({ kind }) => kind))].toSorted(),
          [...faultKinds].toSorted()
        )
        assert.strictEqual(new Set(plan.map(targetName)).size, 2 * counts.replicas + 2 + counts.nodes)
      }),
      { numRuns: 20 }
    )
  })
})
