import { describe, expect, it } from "@effect/vitest"
import fc from "fast-check"
import { progressText, rateOf, sampled } from "../../../src/cli/files/progress.ts"
import { sizeText } from "../../../src/cli/shared/output.ts"

const MIB = 1024 ** 2

describe("spec 8.7: progress", () => {
  it("sizes have a unit and at most four digits", () => {
    for (const [bytes, text] of [
      [0, "0 B"],
      [1023, "1023 B"],
      [1024, "1.0 KiB"],
      [10 * 1024 - 1, "10 KiB"],
      [1.5 * MIB, "1.5 MiB"],
      [340 * MIB, "340 MiB"],
      [1024 ** 3 - 1, "1.0 GiB"],
      [5 * 1024 ** 5, "5120 TiB"]
    ] as const)
      expect(sizeText(bytes)).toBe(text)
  })

  it("the line has what is done, of how much, the rate and the rest of the time", () => {
    const file = { name: "world.zip", files: 1, done: 30 * MIB, total: 120 * MIB, rate: 9 * MIB }
    expect(progressText(file, 80)).toBe("world.zip  30 MiB of 120 MiB  25%  9.0 MiB/s  10s left")
    expect(progressText({ ...file, files: 12, total: undefined }, 80)).toBe(
      "world.zip  12 files  30 MiB  9.0 MiB/s"
    )
    expect(progressText({ ...file, files: 3, ofFiles: 12 }, 80)).toBe(
      "world.zip  3 of 12 files  30 MiB of 120 MiB  25%  9.0 MiB/s  10s left"
    )
    expect(progressText({ ...file, done: 0, total: 0, rate: 0 }, 80)).toBe("world.zip  0 B  0 B/s")
  })

  it("no line is wider than the terminal or acts on it, whatever the file is called", () => {
    fc.assert(
      fc.property(
        fc.string({ unit: "binary", maxLength: 300 }),
        fc.integer({ min: 0, max: 200 }),
        fc.nat(),
        fc.nat(),
        (name, width, done, total) => {
          const line = progressText({ name, files: 3, done, total, rate: 1000 }, width)
          expect([...line].length).toBeLessThanOrEqual(width)
          expect(line).not.toMatch(/\p{Cc}/u)
        }
      )
    )
  })

  it("the rate is that of the last five seconds", () => {
    const samples = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].reduce(
      (before, second) => sampled(before, { at: second * 1000, done: second < 5 ? 0 : (second - 4) * 100 }),
      sampled([], { at: 0, done: 0 })
    )
    expect(rateOf(samples)).toBe(100)
    expect(rateOf([])).toBe(0)
    expect(rateOf([{ at: 1, done: 5 }])).toBe(0)
    // A file that begins again does not go backwards.
    expect(
      rateOf([
        { at: 0, done: 5 },
        { at: 1, done: 0 }
      ])
    ).toBe(0)
  })
})
