import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { nameBytes, shownName, whyNoPath } from "../../../src/contract/domain/Files.ts"

const bytes = fc.uint8Array({ maxLength: 12 })
/** Names in which the parts of an escape are frequent. */
const tricky = fc
  .array(
    fc.constantFrom(
      0x25,
      0x32,
      0x35,
      0x38,
      0x46,
      0x41,
      0xff,
      0x80,
      0xc3,
      0xa9,
      0xe2,
      0x82,
      0xac,
      0xef,
      0xbb,
      0xbf
    ),
    {
      maxLength: 12
    }
  )
  .map((list) => Uint8Array.from(list))

describe("spec 10.2: names as callers see them", () => {
  it("every name of bytes has a text, and the text names these bytes", () => {
    fc.assert(
      fc.property(fc.oneof(bytes, tricky), (name) => {
        expect([...nameBytes(shownName(name))]).toEqual([...name])
      }),
      { numRuns: 5000 }
    )
  })

  it("a text without a percent sign is the name itself", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), (text) => {
        if (text.includes("%")) return
        expect(shownName(nameBytes(text))).toBe(text)
      })
    )
  })

  it("other bytes are %XX, and a percent sign before such digits or before 25 is %25", () => {
    const shown = (text: string) => shownName(Uint8Array.from(Buffer.from(text, "latin1")))
    expect(shown("a\xffb")).toBe("a%FFb")
    expect(shown("50%")).toBe("50%")
    expect(shown("%FF")).toBe("%25FF")
    expect(shown("%25")).toBe("%2525")
    expect(shown("%41 %ff %2")).toBe("%41 %ff %2")
    expect(shownName(new TextEncoder().encode("é€😀"))).toBe("é€😀")
  })

  it("no escape makes a slash, a dot or a NUL", () => {
    for (const text of ["%2F", "%2E%2E", "%00"]) expect(Buffer.from(nameBytes(text)).toString()).toBe(text)
  })

  it("paths are bounded by the bytes of their names", () => {
    expect(whyNoPath(`/${"%FF".repeat(255)}`)).toBeUndefined()
    expect(whyNoPath(`/${"%FF".repeat(256)}`)).toMatch(/more than 255 bytes/)
    expect(whyNoPath(`/${"a/".repeat(63)}a`)).toBeUndefined()
    expect(whyNoPath(`/${"a/".repeat(64)}a`)).toMatch(/64 names/)
    for (const path of ["", "a", "//", "/a/", "/./a", "/../a", "/a\0"]) expect(whyNoPath(path)).toBeDefined()
  })
})
