import { join, resolve } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Result } from "effect"
import fc from "fast-check"
import { localName, partName, within } from "../../../src/cli/files/localNames.ts"

/** Names that a hostile service may list. */
const hostile = fc.oneof(
  fc.string({ unit: "binary", maxLength: 40 }),
  fc
    .array(fc.constantFrom("..", ".", "/", "\\", "\0", "%2E", "%2F", "%00", "%25", "%FF", "C:", "a", "~"), {
      maxLength: 6
    })
    .map((parts) => parts.join(""))
)

describe("spec 10.2: a name of a server leads to no other folder of this system", () => {
  it("an accepted name is one name in the folder, whatever the service lists", () => {
    const folder = resolve("/downloads/world")
    fc.assert(
      fc.property(hostile, (shown) => {
        const name = localName(shown, "linux")
        if (Result.isFailure(name)) return
        const path = within(Buffer.from(folder), name.success).toString("latin1")
        expect(path).not.toContain("\0")
        expect(join(path)).toBe(path)
        expect(resolve(path, "..")).toBe(folder)
      }),
      { numRuns: 2000 }
    )
  })

  it("parents, absolute names, NUL and names of more than 255 bytes are refused", () => {
    for (const shown of ["", ".", "..", "/etc/passwd", "a/b", "../x", "a\0b", "ä".repeat(128)])
      expect(Result.isFailure(localName(shown, "linux")), JSON.stringify(shown)).toBe(true)
    for (const shown of ["...", "a..b", "%2E%2E", "-rf", "ä".repeat(127)])
      expect(Result.isSuccess(localName(shown, "linux")), shown).toBe(true)
  })

  it("names that Windows cannot have, or reads as paths, are refused there", () => {
    for (const shown of ["..\\x", "C:x", "aux", "COM1.txt", "a.", "a ", "what?"]) {
      expect(Result.isFailure(localName(shown, "win32")), shown).toBe(true)
      expect(Result.isSuccess(localName(shown, "linux")), shown).toBe(true)
    }
  })

  it("a file arrives beside its place as NAME.part, or under a random name if that is too long", () => {
    expect(partName(Buffer.from("a"), "r").toString()).toBe("a.part")
    expect(partName(Buffer.from("a".repeat(251)), "r").toString()).toBe(".r.part")
  })
})
