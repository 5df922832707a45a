import { join, resolve } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Result } from "effect"
import fc from "fast-check"
import { bytesOf, localName, partName, shownName, within } from "../../../src/cli/files/localNames.ts"

const bytes = fc.uint8Array({ minLength: 1, maxLength: 40 }).map((array) => Buffer.from(array))

/** Names that a hostile service may list. */
const hostile = fc.oneof(
  fc.string({ unit: "binary", maxLength: 40 }),
  fc
    .array(fc.constantFrom("..", ".", "/", "\\", "\0", "%2E", "%2F", "%00", "%25", "%FF", "C:", "a", "~"), {
      maxLength: 6
    })
    .map((parts) => parts.join(""))
)

describe("spec 10.2: names of files as the service shows them", () => {
  it("every name of bytes is shown and read back", () => {
    fc.assert(fc.property(bytes, (name) => bytesOf(shownName(name)).equals(name)))
  })

  it("a byte that is not UTF-8 is %XX, and a % before such digits is %25", () => {
    for (const [name, shown] of [
      [Buffer.from("welt ä.dat"), "welt ä.dat"],
      [Buffer.from([0x61, 0xff, 0x2e]), "a%FF."],
      [Buffer.from("100%.txt"), "100%.txt"],
      [Buffer.from("%FF"), "%25FF"],
      [Buffer.from("%25"), "%2525"],
      [Buffer.from([0x25, 0xff]), "%%FF"],
      // A half of a surrogate pair, and a slash of two bytes, are no UTF-8.
      [Buffer.from([0xed, 0xa0, 0x80]), "%ED%A0%80"],
      [Buffer.from([0xc0, 0xaf]), "%C0%AF"]
    ] as const) {
      expect(shownName(name)).toBe(shown)
      expect(bytesOf(shown)).toEqual(name)
    }
  })
})

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

  it("a file arrives beside its place, under a name that no file of the download has", () => {
    const free = () => false
    expect(partName(Buffer.from("a"), free, "r").toString()).toBe("a.part")
    expect(partName(Buffer.from("a"), (shown) => shown === "a.part", "r").toString()).toBe(".r.part")
    expect(partName(Buffer.from("a".repeat(251)), free, "r").toString()).toBe(".r.part")
  })
})
