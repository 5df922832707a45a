import { describe, expect, it } from "vitest"
import { table, tableOfItems } from "../../../src/cli/shared/output.ts"
import { changes } from "../../../src/cli/shared/rollout.ts"

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

  it("a change of a long value shows the first line that is another one", () => {
    const script = (version: string) =>
      `#!/bin/sh\nset -e\ncurl -o server.jar ${version}\n${"# more\n".repeat(1000)}`
    const from = null
    const items = [
      {
        path: "install_script.script",
        from: script("1.0"),
        to: script("1.1"),
        needs: "installation" as const
      },
      { path: "process", from, to: { invocation: "x".repeat(100) }, needs: "restart" as const },
      { path: "version", from: "1.0", to: "1.1", needs: "installation" as const }
    ]
    const lines = tableOfItems(changes, items).split("\n")
    expect(lines.map((line) => line.split(/ {2,}/))).toEqual([
      ["PATH", "FROM", "TO", "NEEDS"],
      [
        "install_script.script",
        "line 3: curl -o server.jar 1.0",
        "line 3: curl -o server.jar 1.1",
        "installation"
      ],
      ["process", "-", `{"invocation":"${"x".repeat(45)}…`, "restart"],
      ["version", "1.0", "1.1", "installation"]
    ])
  })
})
