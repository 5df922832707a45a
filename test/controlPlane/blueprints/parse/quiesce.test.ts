import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import { onlineMatcher } from "../../../../src/daemon/console/onlineSignal.ts"
import { parse, problemsOf, softwareFile } from "../support.ts"

const quiesceOf = (text: string) => {
  const { definition } = parse(text, "software")
  return definition?.kind === "software" ? definition.software.quiesce : undefined
}

const line = fc.string({ minLength: 1, maxLength: 60, unit: "grapheme-ascii" })
const rule = fc.record({
  before: fc.array(line, { minLength: 1, maxLength: 20 }),
  until: line.filter((text) => !text.startsWith("regex:")),
  timeout: fc.integer({ min: 1, max: 600 }),
  after: fc.array(line, { maxLength: 20 }),
  on_failure: fc.constantFrom("continue", "fail")
})

describe("spec 4.5, 12.10: quiesce of software", () => {
  it("is read with its defaults, and is absent without the field", () => {
    assert.isUndefined(quiesceOf(softwareFile("a")))
    const least = '  quiesce: { before: [save-off, save-all flush], until: "Saved the game" }\n'
    assert.deepStrictEqual(quiesceOf(softwareFile("a", least)), {
      before: ["save-off", "save-all flush"],
      until: "Saved the game",
      timeout: 60,
      after: [],
      on_failure: "continue"
    })
  })

  it("is read as it is written", () => {
    fc.assert(
      fc.property(rule, (written) => {
        assert.deepStrictEqual(
          quiesceOf(softwareFile("a", `  quiesce: ${JSON.stringify(written)}\n`)),
          written
        )
      }),
      { numRuns: 30 }
    )
  })

  it("is refused with line and column", () => {
    const text = softwareFile(
      "a",
      '  quiesce:\n    before: []\n    until: "regex:(["\n    timeout: 601\n    after: ["a\\u0007"]\n    on_failure: stop\n'
    )
    assert.deepStrictEqual(problemsOf(text, "software"), [
      "5:13: expected at least one line",
      "6:12: not a regular expression: Invalid regular expression: /([/: Unterminated character class",
      "7:14: expected a value between 1 and 600, found 601",
      '8:13: expected a line without control characters, found the text "a "',
      '9:17: expected continue or fail, found the text "stop"'
    ])
    const lines = JSON.stringify(Array.from({ length: 21 }, () => "save"))
    assert.deepStrictEqual(
      problemsOf(softwareFile("a", `  quiesce: { before: ${lines}, until: saved }\n`), "software"),
      ["4:22: expected at most 20 lines, found 21"]
    )
  })
})

describe("software/paper.yml: quiesce", () => {
  it("waits for the server's own line, which no player can write", () => {
    const { until = "" } = quiesceOf(readFileSync("software/paper.yml", "utf8")) ?? {}
    const found = onlineMatcher(until)
    if ("invalid" in found) assert.fail(found.invalid)
    const isFound = (text: string) => found.matcher([{ text, continues: false, isCut: false }])
    for (const line of [
      "[12:30:05 INFO]: Saved the game",
      "\u001b[32m[12:30:05 INFO]: Saved the game\u001b[m"
    ])
      assert.isTrue(isFound(line), line)
    const said = "[12:30:05 INFO]: Saved the game"
    for (const before of ["<Eve> ", "Eve: ", "[Not Secure] <Eve> ", "* Eve ", "[Eve] ", "[Eve: "])
      for (const text of ["Saved the game", said, `]: ${said}`])
        assert.isFalse(isFound(`[12:30:06 INFO]: ${before}${text}`) === true, `${before}${text}`)
    assert.isFalse(isFound(`[12:30:06 INFO]: [Eve: Saved the game]`) === true)
  })
})
