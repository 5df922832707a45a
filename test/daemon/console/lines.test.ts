import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { decodeLine, LINE_CAP, lineEnd } from "../../../src/daemon/console/lines.ts"
import { stripAnsi } from "../../../src/domain/stripAnsi.ts"

/** Splits bytes that arrive in pieces of the given sizes into lines. */
const split = (data: Uint8Array, sizes: ReadonlyArray<number>) => {
  const lines: Array<string> = []
  let pending = Buffer.alloc(0)
  let at = 0
  for (const size of [...sizes, data.length]) {
    pending = Buffer.concat([pending, data.subarray(at, at + size)])
    at = Math.min(at + size, data.length)
    let from = 0
    for (let end = lineEnd(pending, 0); end !== undefined; end = lineEnd(pending, from)) {
      lines.push(decodeLine(pending.subarray(from, end.textEnd)))
      from = end.next
    }
    pending = Buffer.from(pending.subarray(from))
  }
  return { lines, rest: decodeLine(pending) }
}

describe("decisions 3, console lines", () => {
  it("a line ends at a line break, with or without a carriage return", () => {
    assert.deepStrictEqual(split(Buffer.from("a\r\nb\n\r\nc"), []), { lines: ["a", "b", ""], rest: "c" })
  })

  it("a line is cut at the limit, never inside a character", () => {
    const { lines, rest } = split(Buffer.from(`x${"€".repeat(4000)}`), [])
    assert.strictEqual(lines.concat(rest).join(""), `x${"€".repeat(4000)}`)
    assert.isTrue(lines.every((line) => Buffer.byteLength(line) <= LINE_CAP && !line.includes("\ufffd")))
  })

  it("the lines do not depend on how the bytes arrive", () => {
    const piece = fc.oneof(
      fc.uint8Array({ maxLength: 50 }),
      fc.constant(Buffer.from("\n")),
      fc.constant(Buffer.from("\r\n")),
      fc.nat(3 * LINE_CAP).map((length) => Buffer.alloc(length, "é"))
    )
    fc.assert(
      fc.property(
        fc.array(piece, { maxLength: 8 }),
        fc.array(fc.nat(5000), { maxLength: 8 }),
        (pieces, sizes) => {
          const data = Buffer.concat(pieces)
          assert.deepStrictEqual(split(data, sizes), split(data, []))
        }
      ),
      { numRuns: 60 }
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
