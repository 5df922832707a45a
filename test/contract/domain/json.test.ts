import { assert, describe, it } from "vitest"
import { assign, type Value } from "../../../src/contract/domain/json.ts"

describe("assign", () => {
  it("sets and removes values at paths; of several values of one path, the last one counts", () => {
    const before: Value = { a: { b: 1, c: 2 }, d: [1], e: null }
    assert.deepStrictEqual(
      assign(before, [
        [["a", "b"], 3],
        [["a", "c"], undefined],
        [["e", "f"], true],
        [["d"], undefined],
        [["g", "h", "i"], "new"],
        [["a", "b"], 4]
      ]),
      { a: { b: 4 }, e: { f: true }, g: { h: { i: "new" } } }
    )
    assert.deepStrictEqual(before, { a: { b: 1, c: 2 }, d: [1], e: null })
    assert.strictEqual(assign(before, []), before)
    assert.deepStrictEqual(
      assign(before, [
        [["a", "b"], 5],
        [[], { x: 1 }],
        [["y"], 2]
      ]),
      { x: 1, y: 2 }
    )
  })

  it("a name such as __proto__ is a field as any other", () => {
    const after = assign({}, [[["__proto__", "polluted"], true]])
    assert.deepStrictEqual(Object.keys(after ?? {}), ["__proto__"])
    assert.isFalse("polluted" in {})
  })

  it("100,000 changes of one object take linear time: quadratic time would exceed the time of a test", () => {
    const names = Array.from({ length: 100_000 }, (_, n) => `k${n}`)
    const after = assign(
      Object.fromEntries(names.map((name) => [name, 0])),
      names.map((name) => [[name], 1] as const)
    )
    assert.strictEqual(Object.keys(after ?? {}).length, names.length)
  })
})
