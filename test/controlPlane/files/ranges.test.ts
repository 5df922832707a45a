import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { attachment, rangeOf, sha256Of, tagsOf } from "../../../src/controlPlane/files/content.ts"

describe("spec 10.3: ranges of a file", () => {
  it("a range lies in the file; what cannot be read is the whole file", () => {
    const header = fc.oneof(
      fc.tuple(fc.nat(50), fc.nat(50)).map(([first, last]) => `bytes=${first}-${last}`),
      fc.nat(50).map((first) => `bytes=${first}-`),
      fc.nat(50).map((last) => `bytes=-${last}`),
      fc.string(),
      fc.stringMatching(/^bytes=[-\d, ]{0,20}$/)
    )
    fc.assert(
      fc.property(header, fc.nat(30), (given, size) => {
        const range = rangeOf(given, size)
        if (range === undefined || range === "unsatisfiable") return
        assert.isAtLeast(range.start, 0)
        assert.isAtMost(range.start, range.end)
        assert.isBelow(range.end, size)
      })
    )
  })

  it("the last bytes of a file are all of a shorter one; a range behind the end has none", () => {
    assert.deepStrictEqual(rangeOf("bytes=-5", 3), { start: 0, end: 2 })
    assert.strictEqual(rangeOf("bytes=3-", 3), "unsatisfiable")
    assert.strictEqual(rangeOf("bytes=0-", 0), "unsatisfiable")
    assert.strictEqual(rangeOf("bytes=-0", 3), "unsatisfiable")
    assert.isUndefined(rangeOf(undefined, 3))
    assert.isUndefined(rangeOf("bytes=0-0,2-2", 3))
  })
})

describe("spec 10.3: heads", () => {
  it("the name of an attachment is one line of ASCII whose UTF-8 form is the name", () => {
    const names = fc
      .array(fc.integer({ min: 0, max: 0xffff }), { maxLength: 40 })
      .map((units) => String.fromCharCode(...units))
    fc.assert(
      fc.property(names, (name) => {
        const [, encoded = ""] =
          /^attachment; filename="[\x20\x21\x23-\x5b\x5d-\x7e]*"; filename\*=UTF-8''([A-Za-z0-9!~._%-]*)$/.exec(
            attachment(name)
          ) ?? []
        assert.strictEqual(decodeURIComponent(encoded), name.toWellFormed())
      })
    )
  })

  it("a digest is found among others; one that cannot be read is told apart from none", () => {
    const digest = `${"A".repeat(43)}=`
    assert.strictEqual(sha256Of(`sha-512=:x:, sha-256=:${digest}:`), digest)
    assert.isNull(sha256Of("sha-256=:short:"))
    assert.isUndefined(sha256Of("sha-512=:x:"))
    assert.isUndefined(sha256Of(undefined))
  })

  it("tags are read with their quotes and marks", () => {
    assert.deepStrictEqual(tagsOf('"a", W/"b"'), ['"a"', 'W/"b"'])
    assert.strictEqual(tagsOf(" * "), "*")
    assert.deepStrictEqual(tagsOf("nothing"), [])
  })
})
