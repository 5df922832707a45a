import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { stripAnsi } from "../../../src/contract/domain/ConsoleLine.ts"
import { LINE_CAP, type Line, lineOf, lineReader } from "../../../src/daemon/console/lines.ts"
import { onlineMatcher } from "../../../src/daemon/console/onlineSignal.ts"

/** Reads bytes that arrive in chunks of the given sizes; the last line may be open. */
const read = (data: Uint8Array, sizes: ReadonlyArray<number>): ReadonlyArray<Line> => {
  const lines: Array<Line> = []
  const reader = lineReader()
  let at = 0
  for (const size of [...sizes, data.length]) {
    reader.read(Buffer.from(data.subarray(at, at + size)), (part) => lines.push(lineOf(part)))
    at = Math.min(at + size, data.length)
  }
  return [...lines, { ...lineOf(reader.open()), isOpen: true }]
}

const split = (text: string, sizes: ReadonlyArray<number> = []) =>
  read(Buffer.from(text), sizes).map((line) => line.text)

const chunks = fc.array(fc.nat(5000), { maxLength: 8 })

/** Texts of lines of any length. */
const anyText = fc
  .array(
    fc.oneof(
      { weight: 3, arbitrary: fc.constantFrom("a", "b", "online", "onl", "ine", "\r", "\n", "\r\n") },
      { weight: 1, arbitrary: fc.nat(3 * LINE_CAP).map((length) => "x".repeat(length)) }
    ),
    { maxLength: 12 }
  )
  .map((pieces) => pieces.join(""))

/** The texts that a terminal has shown: of a long one that was replaced, the parts that were delivered before. */
const shownIn = (text: string): ReadonlyArray<string> =>
  text.split("\n").flatMap((line) => {
    const states = line.replace(/\r+$/, "").split(/\r+/)
    return states.map((state, at) =>
      at === states.length - 1
        ? state
        : state.slice(0, Math.floor(Math.max(0, state.length - 1) / LINE_CAP) * LINE_CAP)
    )
  })

describe("spec 3.10: lines", () => {
  it("a line ends at a line break, with or without carriage returns", () => {
    assert.deepStrictEqual(split("a\r\nb\n\r\nc\r\r\nd"), ["a", "b", "", "c", "d"])
  })

  it("a carriage return without a line break replaces the line so far", () => {
    assert.deepStrictEqual(split("\r10 %\r20 %\r\nready\n30 %\r"), ["20 %", "ready", "30 %"])
    assert.deepStrictEqual(split(`${"x".repeat(LINE_CAP)}\rshort\n`), ["short", ""])
  })

  it("a line is cut at the limit, never inside a character", () => {
    const lines = split(`x${"€".repeat(4000)}`)
    assert.strictEqual(lines.join(""), `x${"€".repeat(4000)}`)
    assert.isTrue(lines.every((line) => Buffer.byteLength(line) <= LINE_CAP && !line.includes("\ufffd")))
    assert.deepStrictEqual(split(`${"x".repeat(LINE_CAP)}\r\n`), ["x".repeat(LINE_CAP), ""])
  })

  it("the lines do not depend on how the bytes arrive", () => {
    const piece = fc.oneof(
      fc.uint8Array({ maxLength: 50 }),
      fc.constantFrom(..."\n,\r,\r\n".split(",").map((text) => Buffer.from(text))),
      fc.nat(3 * LINE_CAP).map((length) => Buffer.alloc(length, "é"))
    )
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), chunks, (pieces, sizes) => {
        const data = Buffer.concat(pieces)
        assert.deepStrictEqual(read(data, sizes), read(data, []))
      }),
      { numRuns: 60 }
    )
  })

  it("the online signal is found anywhere in a line of any length, and nowhere else", () => {
    const find = (signal: string, lines: ReadonlyArray<Line>) => {
      const found = onlineMatcher(signal)
      return "matcher" in found && lines.some((line) => found.matcher([line]) === true)
    }
    fc.assert(
      fc.property(anyText, chunks, (text, sizes) => {
        const lines = read(Buffer.from(text), sizes)
        const shown = shownIn(text)
        const isShown = shown.some((line) => line.includes("online"))
        assert.strictEqual(find("online", lines), isShown)
        assert.strictEqual(find("regex:.*onl(?=ine)", lines), isShown)
        // Only the end of a line is one; of a replaced line, no end is seen.
        const whole = text.split("\n").map((line) => line.replace(/\r+$/, "").split(/\r+/).at(-1) ?? "")
        assert.strictEqual(
          find("regex:online$", lines),
          whole.some((line) => line.endsWith("online"))
        )
      }),
      { numRuns: 80 }
    )
  })

  it("ANSI sequences are removed", () => {
    assert.strictEqual(
      stripAnsi(
        "\u001b[1;31mred\u001b[0m \u001b]0;title\u0007x\u001b]8;;http://a\u001b\\link\u001b(B\u0007\ttab"
      ),
      "red xlink\ttab"
    )
  })
})
