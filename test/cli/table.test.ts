import { describe, expect, it } from "vitest"
import { table } from "../../src/cli/table.ts"

describe("tables of commands", () => {
  it("have upper-case names in the first line, and columns below each other", () => {
    const rows = [
      ["one", "connected", "0"],
      ["second", "away", "12"]
    ]
    expect(table(["id", "state", "servers"], rows)).toBe(
      ["ID      STATE      SERVERS", "one     connected  0", "second  away       12"].join("\n")
    )
  })

  it("have one line a row, whatever its cells hold, and a dash for nothing", () => {
    expect(table(["id", "name", "seen"], [["a", "two\nlines\u001b[31m", ""]])).toBe(
      ["ID  NAME            SEEN", "a   two?lines?[31m  -"].join("\n")
    )
  })
})
