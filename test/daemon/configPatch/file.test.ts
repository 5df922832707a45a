import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import fc from "fast-check"
import { patchText } from "../../../src/daemon/configPatch/patchText.ts"
import { patched, refusal, unmatched } from "./support.ts"

describe("Config parsers: file", () => {
  it("a line that starts with the key is replaced by the value", () => {
    assert.strictEqual(
      patched("file", "host localhost\r\nport 1\n  port 2\nlast", { "port ": "port 25565", last: "end" }),
      "host localhost\r\nport 25565\n  port 2\nend"
    )
  })

  it("of several matching keys the longest decides; a replaced line is not matched again", () => {
    assert.strictEqual(
      patched("file", "port=1\nport-x=2\n", { port: "port-x=9", "port-": "A" }),
      "port-x=9\nA\n"
    )
  })

  it("keys are literal", () => {
    assert.strictEqual(patched("file", "a.b 1\nab\n* x\n", { "a.b": "q", "*": "star" }), "q\nab\nstar\n")
  })

  it("a missing file stays missing", () => {
    const unmatched = [{ key: "a", reason: "the file does not exist" }]
    assert.deepStrictEqual(
      patchText("file", undefined, { a: "b" }),
      Result.succeed({ text: undefined, unmatched })
    )
  })

  it("a key without a match is returned with the reason", () => {
    assert.deepStrictEqual(unmatched("file", "a 1\nb 2\n", { "a ": "a 2", "c ": "c 1", x: "b 2" }), [
      { key: "c ", reason: "no line starts with it" }
    ])
  })

  it("maps, lists, line breaks and empty keys are refused", () => {
    assert.match(refusal("file", "", { a: { b: 1 } }), /map/)
    assert.match(refusal("file", "", { a: [] }), /list/)
    assert.match(refusal("file", "", { a: "b\nc" }), /line break/)
    assert.match(refusal("file", "", { "": "b" }), /empty/)
  })

  it("lines that match no key are unchanged", () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ unit: "binary" })),
        fc.dictionary(fc.string({ minLength: 1 }), fc.stringMatching(/^[^\r\n]*$/)),
        (lines, find) => {
          const text = lines.join("\n")
          const result = patched("file", text, find)
          const kept = text.split(/\r\n|\n|\r/)
          const now = result.split(/\r\n|\n|\r/)
          assert.strictEqual(now.length, kept.length)
          kept.forEach((line, n) => {
            if (!Object.keys(find).some((key) => line.startsWith(key))) assert.strictEqual(now[n], line)
          })
        }
      )
    )
  })

  it("the only line may become empty", () => {
    assert.strictEqual(patched("file", "a", { a: "" }), "")
  })
})
