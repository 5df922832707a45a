import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as fc from "fast-check"
import { mapVersion, parseRange, satisfies } from "../../../../src/controlPlane/blueprints/parse/versions.ts"

const holds = (version: string, range: string): boolean => {
  const parsed = parseRange(range)
  return Result.isSuccess(parsed) && satisfies(version, parsed.success)
}

const release = fc.array(fc.nat(40), { minLength: 1, maxLength: 4 }).map((numbers) => numbers.join("."))
const suffix = fc.constantFrom(
  "",
  "-pre1",
  "-pre2",
  "-pre10",
  "-rc1",
  "-beta.3",
  "-snapshot-2",
  "-47.2.0",
  "-R0.1-SNAPSHOT"
)
const version = fc.tuple(release, suffix).map(([numbers, tail]) => numbers + tail)

/** Compares two versions by ranges: exactly one range matches, or the versions have no order. */
const order = (a: string, b: string): number | undefined => {
  const all = [`<${b}`, `=${b}`, `>${b}`].map((range) => holds(a, range))
  assert.isAtMost(all.filter((it) => it).length, 1)
  return all.includes(true) ? all.indexOf(true) - 1 : undefined
}

describe("spec 4.5: order of versions", () => {
  it("Minecraft's releases are in order of publication", () => {
    const released = [
      "1.7.10",
      "1.20-pre1",
      "1.20-rc1",
      "1.20",
      "1.20.1",
      "1.20.1-47.2.0",
      "1.21.2",
      "1.21.10",
      "1.21.11-pre1",
      "1.21.11-pre2",
      "1.21.11-pre10",
      "1.21.11-rc1",
      "1.21.11",
      "26.1-snapshot-1",
      "26.1-pre-1",
      "26.1",
      "26.1.1"
    ]
    for (const [i, a] of released.entries()) {
      for (const [j, b] of released.entries())
        assert.strictEqual(order(a, b), Math.sign(i - j), `${a} and ${b}`)
    }
  })

  it("weekly snapshots are ordered among themselves, but not with releases", () => {
    assert.strictEqual(order("23w51b", "24w14a"), -1)
    assert.strictEqual(order("24w14a", "24w14b"), -1)
    assert.isUndefined(order("24w14a", "1.20.5"))
    assert.isFalse(holds("24w14a", ">=1.20"))
    assert.isTrue(holds("24w14a", ">=24w10a"))
  })

  it("missing numbers are 0, and the text after a + is ignored", () => {
    assert.strictEqual(order("1.20", "1.20.0"), 0)
    assert.strictEqual(order("1.20.1+build.5", "1.20.1"), 0)
  })

  it("releases are totally ordered", () => {
    fc.assert(
      fc.property(version, version, version, (a, b, c) => {
        assert.include([-1, 0, 1], order(a, b))
        assert.strictEqual((order(a, b) ?? 0) + (order(b, a) ?? 0), 0)
        assert.strictEqual(order(a, a), 0)
        if (order(a, b) !== 1 && order(b, c) !== 1) assert.notStrictEqual(order(a, c), 1)
      })
    )
  })

  it("any text is compared without an error", () => {
    fc.assert(
      fc.property(fc.string(), fc.string(), (a, b) => assert.include([-1, 0, 1, undefined], order(a, b)))
    )
  })
})

describe("spec 4.5: version ranges", () => {
  it("the operators are > >= < <= == = and a bare version, joined by spaces", () => {
    assert.isTrue(holds("1.21.11", ">=1.20.5 <=1.21.11"))
    assert.isFalse(holds("1.21.12", ">=1.20.5 <=1.21.11"))
    assert.isTrue(holds("1.20.6", "> 1.20.5"))
    assert.isFalse(holds("1.20.5", ">1.20.5"))
    assert.isTrue(holds("1.21.11-pre1", ">=1.20.5 <1.21.11"))
    for (const range of ["1.20", "=1.20", "==1.20", "== 1.20", " 1.20 "]) {
      assert.isTrue(holds("1.20", range), range)
      assert.isFalse(holds("1.20.1", range), range)
    }
    assert.isTrue(holds("latest", "latest"))
    assert.isFalse(holds("newest", "latest"))
  })

  it("every operator agrees with the order", () => {
    fc.assert(
      fc.property(version, version, (a, b) => {
        const compared = order(a, b)
        assert.strictEqual(holds(a, `>=${b}`), compared !== -1)
        assert.strictEqual(holds(a, `<=${b}`), compared !== 1)
        assert.strictEqual(holds(a, `==${b}`), compared === 0)
        assert.strictEqual(holds(a, b), compared === 0)
        assert.strictEqual(holds(a, `>=${b} <${b}`), false)
      })
    )
  })

  it("an unknown operator is refused with its position", () => {
    for (const range of [
      "",
      "  ",
      "^1.20",
      "~1.2",
      "1.x",
      "*",
      ">=",
      ">=1.20<1.21",
      ">=1 || <2",
      ">=latest",
      "=>1"
    ]) {
      const parsed = parseRange(range)
      assert.isTrue(Result.isFailure(parsed), range)
    }
    assert.deepStrictEqual(
      Result.getFailure(parseRange(">=1.20 ^2")).pipe((failure) =>
        JSON.stringify(failure).includes("at `^2`")
      ),
      true
    )
  })

  it("any text is read in linear time", () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(...">=<=1.9axw-+_ \t\n^~") }), (text) => {
        const parsed = parseRange(text)
        assert.isBoolean(Result.isSuccess(parsed) && satisfies(text, parsed.success))
      })
    )
    for (const part of [">= ", " ", "1", "1.", "1 "]) {
      assert.isTrue(Result.isFailure(parseRange(`${part.repeat(100_000)}!`)), part)
    }
  })
})

describe("spec 4.5: mappings", () => {
  const mappings = [
    { image: "any", range: "default" },
    { image: "java_21", range: ">=1.20.5 <=1.21.11" },
    { image: "late", range: ">=1.21" }
  ]

  it("the first matching entry is used, and `default` only if no other matches", () => {
    assert.strictEqual(mapVersion(mappings, "1.21.5"), "java_21")
    assert.strictEqual(mapVersion(mappings, "1.22"), "late")
    assert.strictEqual(mapVersion(mappings, "1.8"), "any")
    assert.strictEqual(mapVersion(mappings, "24w14a"), "any")
    assert.isUndefined(mapVersion(mappings.slice(1), "1.8"))
  })
})
