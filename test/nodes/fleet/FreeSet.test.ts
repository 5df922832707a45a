import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { FreeSet } from "../../../src/nodes/fleet/FreeSet.ts"

const operations = (bound: number) =>
  fc.array(
    fc.tuple(
      fc.constantFrom("add", "addRange", "delete", "next"),
      fc.nat({ max: bound - 1 }),
      fc.nat({ max: Math.min(bound - 1, 100) })
    ),
    { maxLength: 200 }
  )

describe("spec 2.5: the set of free ports", () => {
  it("the set behaves as a plain set, and next returns the lowest member from a bound on", () => {
    const anyBound = fc.constantFrom(1, 31, 32, 33, 1000, 1024, 1025, 40_000, 65_536)
    fc.assert(
      fc.property(
        anyBound.chain((bound) => fc.tuple(fc.constant(bound), operations(bound))),
        ([bound, steps]) => {
          const set = new FreeSet(bound)
          const model = new Set<number>()
          for (const [operation, member, more] of steps) {
            if (operation === "add") {
              set.add(member)
              model.add(member)
            } else if (operation === "addRange") {
              const last = Math.min(member + more, bound - 1)
              set.addRange(member, last)
              for (let one = member; one <= last; one++) model.add(one)
            } else if (operation === "delete") {
              set.delete(member)
              model.delete(member)
            } else {
              const above = [...model].filter((one) => one >= member)
              assert.strictEqual(set.next(member), above.length === 0 ? undefined : Math.min(...above))
            }
            assert.strictEqual(set.size, model.size)
            assert.strictEqual(set.has(member), model.has(member))
          }
        }
      )
    )
  })

  it("the set contains nothing beyond its end", () => {
    const set = new FreeSet(65_536)
    assert.isUndefined(set.next(0))
    set.add(65_535)
    assert.strictEqual(set.next(0), 65_535)
    assert.isUndefined(set.next(65_536))
  })
})
