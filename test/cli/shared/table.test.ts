import { describe, expect, it } from "vitest"
import { table } from "../../../src/cli/shared/output.ts"

describe("muster: tables", () => {
  it("the first line has upper-case names; columns are aligned", () => {
    const rows = [
      ["one", "connected", "0"],
      ["second", "away", "12"]
    ]
    expect(table(["id", "state", "servers"], rows)).toBe(
      ["ID      STATE      SERVERS", "one     connected  0", "second  away       12"].join("\n")
    )
  })

  it("a row is one line with control characters replaced; an empty cell is a dash", () => {
    expect(table(["id", "name", "seen"], [["a", "two\nlines\u001b[31m", ""]])).toBe(
      ["ID  NAME            SEEN", "a   two?lines?[31m  -"].join("\n")
    )
  })
})
