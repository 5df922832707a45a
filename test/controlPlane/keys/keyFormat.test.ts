import { describe, expect, it } from "@effect/vitest"
import * as fc from "fast-check"
import { formatKey, formatKeyId, isWellFormed, KEY_BYTES } from "../../../src/controlPlane/keys/keyFormat.ts"

const random = fc.uint8Array({ minLength: KEY_BYTES, maxLength: KEY_BYTES })
const base62 = fc.constantFrom(..."0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")

describe("spec 6.1: form of a key", () => {
  it("a key is mst_, 43 base62 characters and a checksum of 6, and is recognised", () => {
    fc.assert(
      fc.property(random, (bytes) => {
        const key = formatKey(bytes)
        expect(key).toMatch(/^mst_[0-9A-Za-z]{49}$/)
        expect(isWellFormed(key)).toBe(true)
      })
    )
  })

  it("different bytes give different keys, also at the ends of the range", () => {
    fc.assert(
      fc.property(random, random, (one, other) => {
        const same = one.every((byte, i) => byte === other[i])
        expect(formatKey(one) === formatKey(other)).toBe(same)
      })
    )
    expect(formatKey(new Uint8Array(KEY_BYTES))).toMatch(/^mst_0{43}/)
    expect(isWellFormed(formatKey(new Uint8Array(KEY_BYTES).fill(255)))).toBe(true)
  })

  it("one wrong, swapped, missing or additional character is detected", () => {
    fc.assert(
      fc.property(random, fc.nat({ max: 48 }), base62, (bytes, at, character) => {
        const key = formatKey(bytes)
        const i = at + 4
        const mistyped = key.slice(0, i) + character + key.slice(i + 1)
        expect(isWellFormed(mistyped)).toBe(mistyped === key)
        const swapped = key.slice(0, i) + key.charAt(i + 1) + key.charAt(i) + key.slice(i + 2)
        expect(isWellFormed(swapped)).toBe(swapped === key)
        expect(isWellFormed(key.slice(0, i) + key.slice(i + 1))).toBe(false)
        expect(isWellFormed(key.slice(0, i) + character + key.slice(i))).toBe(false)
      })
    )
  })

  it("any other text is not a key", () => {
    fc.assert(fc.property(fc.string(), (text) => !isWellFormed(text)))
    const key = formatKey(new Uint8Array(KEY_BYTES))
    for (const text of [`${key}\n`, ` ${key}`, key.toUpperCase(), key.replace("mst_", "mst-"), ""]) {
      expect(isWellFormed(text)).toBe(false)
    }
  })

  it("ids are key_ and 16 base62 characters", () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 12, maxLength: 12 }), (bytes) => {
        expect(formatKeyId(bytes)).toMatch(/^key_[0-9A-Za-z]{16}$/)
      })
    )
  })
})
