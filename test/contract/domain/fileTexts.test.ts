import * as fc from "fast-check"
import { describe, expect, it } from "vitest"
import { legible } from "../../../src/contract/domain/fileTexts.ts"

/** Reads a shown name back. */
const read = (shown: string) =>
  shown.replace(/\\u([\da-f]{4})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))

/** Names of the characters that deceive, beside plain ones. */
const names = fc.string({
  unit: fc.oneof(
    fc.constantFrom(
      "\\",
      "u",
      "2",
      "0",
      "e",
      " ",
      "\u202e",
      "\u200b",
      "\u00a0",
      "\u3164",
      "\ufe0f",
      "\n",
      "\u{e0041}"
    ),
    fc.string({ unit: "binary", minLength: 1, maxLength: 1 })
  )
})

describe("spec 10.2: names as people see them", () => {
  it("characters that are not seen, and blanks that a page joins, are escapes; other names stay", () => {
    expect(legible("server.properties")).toBe("server.properties")
    expect(legible("Überraschung (1) 漢字 %FF.yml")).toBe("Überraschung (1) 漢字 %FF.yml")
    expect(legible("invoice\u202egpj.exe")).toBe("invoice\\u202egpj.exe")
    expect(legible("a\u200bb\u3164\u2800\ufe0f")).toBe("a\\u200bb\\u3164\\u2800\\ufe0f")
    expect(legible("\u001b[2J\r\n\u0085\u2028")).toBe("\\u001b[2J\\u000d\\u000a\\u0085\\u2028")
    expect(legible("/a /b  c\u00a0")).toBe("/a\\u0020/b \\u0020c\\u00a0")
    expect(legible("a\\u202eb \\n")).toBe("a\\u005cu202eb \\n")
  })

  it("no two names look alike, and none acts on a terminal", () => {
    fc.assert(
      fc.property(names, (name) => {
        const shown = legible(name)
        expect(read(shown)).toBe(name)
        expect(shown).not.toMatch(/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}|^ | $| {2}/u)
      })
    )
  })
})
