import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import * as fc from "fast-check"
import { InstallState } from "../../../src/contract/domain/InstallState.ts"
import { cleanText, NodeText, timeOfEvent } from "../../../src/contract/domain/NodeText.ts"

const decode = Schema.decodeUnknownSync(NodeText)

describe("messages from nodes: text", () => {
  it.each([
    ["exit code 1", "exit code 1"],
    ["\u001b[31mred\u001b[0m", "\ufffd[31mred\ufffd[0m"],
    ["one\r\n[12:00:00] INFO forged", "one [12:00:00] INFO forged"],
    ["a\u202eb\u200bc\u2066d\ufeff", "a\ufffdb\ufffdc\ufffdd\ufffd"],
    ["a\u2028b\u2029c\u0085d", "a b c d"],
    ["a\u{e0041}b\ud800c", "a\ufffdb\ufffdc"],
    ["Überlauf im Speicher 🏴", "Überlauf im Speicher 🏴"]
  ])("%j becomes %j", (received, shown) => assert.strictEqual(decode(received), shown))

  it("a text of more than 1,024 characters is cut and ends with an ellipsis", () => {
    assert.strictEqual(decode("x".repeat(1024)), "x".repeat(1024))
    assert.strictEqual(decode("x".repeat(1025)), `${"x".repeat(1023)}…`)
    assert.strictEqual(decode(`${"x".repeat(1022)}💀💀`), `${"x".repeat(1022)}\ufffd…`)
  })

  it("any text becomes clean and bounded; cleaning it twice changes nothing", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 1500 }), (text) => {
        const clean = cleanText(text)
        assert.isAtMost(clean.length, 1024)
        assert.notMatch(clean, /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u)
        assert.strictEqual(cleanText(clean), clean)
      }),
      { numRuns: 50 }
    )
  })

  it("a daemon encodes its text unchanged", () => {
    assert.strictEqual(Schema.encodeSync(NodeText)("a\u0000b"), "a\u0000b")
  })
})

describe("messages from nodes: times", () => {
  const receipt = Date.parse("2026-05-05T12:00:00.000Z")

  it.each([
    ["2026-05-05T11:59:59.123Z", "2026-05-05T11:59:59.123Z"],
    ["2026-05-05T11:59:59Z", "2026-05-05T11:59:59.000Z"],
    ["2026-05-05T12:00:59.000Z", "2026-05-05T12:00:59.000Z"],
    ["2026-05-05T12:01:01.000Z", "2026-05-05T12:00:00.000Z"],
    ["2026-04-06T12:00:00.000Z", "2026-04-06T12:00:00.000Z"],
    ["2026-04-05T11:00:00.000Z", "2026-05-05T12:00:00.000Z"],
    ["9999-12-31T23:59:59.999Z", "2026-05-05T12:00:00.000Z"],
    ["2026-02-31T00:00:00.000Z", "2026-05-05T12:00:00.000Z"],
    ["2026-05-05T11:59:59+02:00", "2026-05-05T12:00:00.000Z"],
    ["yesterday", "2026-05-05T12:00:00.000Z"],
    ["", "2026-05-05T12:00:00.000Z"]
  ])("a crash at %j is recorded at %s", (received, recorded) =>
    assert.strictEqual(timeOfEvent(received, receipt), recorded)
  )

  it("an installation keeps its valid times only", () => {
    const install = Schema.decodeUnknownSync(InstallState)({
      phase: "failed",
      started_at: "2026-05-05T11:59:59Z",
      finished_at: "\u001b[2J",
      failure_reason: "a\u0007b"
    })
    assert.deepStrictEqual(install, {
      phase: "failed",
      started_at: "2026-05-05T11:59:59.000Z",
      failure_reason: "a\ufffdb"
    })
  })
})
