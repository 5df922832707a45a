import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { parsePortRanges } from "../../../src/contract/domain/Allocation.ts"

describe("spec 9.2: port ranges", () => {
  it("single ports, ranges and lists are parsed, merged and sorted", () => {
    assert.deepEqual(parsePortRanges("25565"), [{ first: 25565, last: 25565 }])
    assert.deepEqual(parsePortRanges("30000-30010, 25565-25570,25571"), [
      { first: 25565, last: 25571 },
      { first: 30000, last: 30010 }
    ])
  })

  it("any other text is refused", () => {
    for (const text of ["", "x", "0", "65536", "10-5", "1-", "-1", "1--2", "1,,2", "1;2", "1.5"]) {
      assert.isUndefined(parsePortRanges(text), text)
    }
  })

  it("the ranges cover exactly the named ports", () => {
    const range = fc
      .tuple(fc.integer({ min: 1, max: 400 }), fc.nat({ max: 30 }))
      .map(([first, more]) => ({ first, last: first + more }))
    fc.assert(
      fc.property(fc.array(range, { minLength: 1, maxLength: 8 }), (ranges) => {
        const named = new Set(
          ranges.flatMap(({ first, last }) => Array.from({ length: last - first + 1 }, (_, i) => first + i))
        )
        const parsed = parsePortRanges(ranges.map(({ first, last }) => `${first}-${last}`).join(",")) ?? []
        const covered = parsed.flatMap(({ first, last }) =>
          Array.from({ length: last - first + 1 }, (_, i) => first + i)
        )
        assert.deepEqual(
          covered,
          [...named].toSorted((a, b) => a - b)
        )
      })
    )
  })
})
