import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import { largestWriter } from "../../../src/daemon/instances/diskWatch.ts"

const written = (...bytes: ReadonlyArray<number>) => new Map(bytes.map((one, index) => [index, one]))

describe("operations, Limits of servers: the reserve of a node's disk", () => {
  it("what a server wrote before does not count", () => {
    assert.strictEqual(largestWriter(written(900, 10), written(910, 90), 100), 1)
  })

  it("if the servers have written less than half of what was lost, none is stopped", () => {
    assert.isUndefined(largestWriter(written(0, 0), written(20, 29), 100))
    assert.strictEqual(largestWriter(written(0, 0), written(20, 30), 100), 1)
    assert.isUndefined(largestWriter(new Map(), new Map(), 1))
  })

  it("no other server has written more than the one that is stopped", () => {
    const bytes = fc.nat(1000)
    fc.assert(
      fc.property(fc.array(fc.tuple(bytes, bytes), { maxLength: 8 }), bytes, (runs, fell) => {
        const [before, now] = [written(...runs.map(([one]) => one)), written(...runs.map(([, two]) => two))]
        const found = largestWriter(before, now, fell)
        const since = runs.map(([one, two]) => Math.max(0, two - one))
        if (found !== undefined) assert.strictEqual(since[found], Math.max(...since))
        else
          assert.isTrue(since.reduce((sum, one) => sum + one, 0) < fell / 2 || !since.some((one) => one > 0))
      })
    )
  })
})
