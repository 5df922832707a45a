import { assert, describe, it } from "@effect/vitest"
import { missingLines, Repeats } from "../../src/client/console.ts"

describe("the client: lines of a console between two connections", () => {
  it("the stored lines after the newest known ones are missing", () => {
    for (const [had, stored, missing, isContinuous] of [
      [["a", "b", "c"], ["b", "c", "d", "e"], ["d", "e"], true],
      [["a", "b", "c"], ["a", "b", "c"], [], true],
      [["b", "c"], ["a", "b", "c", "d"], ["d"], true],
      // The longer match decides.
      [["x", "a", "c"], ["x", "a", "c", "b", "c", "d"], ["b", "c", "d"], true],
      [[], ["a"], ["a"], true],
      // A prompt that has grown.
      [["a", "> "], ["a", "> stop", "b"], ["> stop", "b"], true],
      [["a"], ["y", "z"], ["y", "z"], false]
    ] as const) {
      assert.deepStrictEqual(missingLines(had, stored), { missing, isContinuous })
    }
  })

  it("a new connection repeats the end of the missing lines once", () => {
    for (const [missing, arriving, delivered] of [
      [
        ["a", "b", "c"],
        ["b", "c", "d", "c"],
        ["d", "c"]
      ],
      [
        ["a", "b", "c"],
        ["d", "c"],
        ["d", "c"]
      ],
      [
        ["a", "b"],
        ["a", "x"],
        ["a", "x"]
      ],
      [["a", "b"], ["b", "b"], ["b"]],
      [[], ["a"], ["a"]]
    ] as const) {
      const repeats = new Repeats(missing)
      assert.deepStrictEqual(
        arriving.flatMap((line) => repeats.take(line, line)),
        [...delivered]
      )
    }
  })
})
