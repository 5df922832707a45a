import { matchesGlob } from "node:path"
import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { glob, pathPatterns } from "../../../src/daemon/access/patterns.ts"

const part = fc.constantFrom("a", "b", "*", "?", "**", "ab")
const pattern = fc.array(
  fc.array(part, { minLength: 1, maxLength: 2 }).map((parts) => parts.join("")),
  {
    minLength: 1,
    maxLength: 4
  }
)
const path = fc.array(fc.constantFrom("a", "b", "ab", "aab", "ba"), { minLength: 1, maxLength: 5 })

describe("spec 10.4: patterns of blueprints", () => {
  it("a glob matches as that of Node.js, where ** is a name of its own", () => {
    fc.assert(
      fc.property(pattern, path, (names, parts) => {
        const own = names.map((name) => (name.includes("**") ? "**" : name))
        // Node.js has its own view of several ** in a row, and of one at the end.
        if (own.at(-1) === "**" || own.some((name, at) => name === "**" && own[at + 1] === "**")) return
        const text = parts.join("/")
        expect(glob(own.join("/"))(text)).toBe(matchesGlob(text, own.join("/")))
      }),
      { numRuns: 2000 }
    )
  })

  it("a pattern without a slash is of names at any depth, and holds for all below a folder", () => {
    const matches = pathPatterns(["*.key", "/config/*.yml", "world/**", "**/secret", "s?v"])
    for (const yes of [
      "/x.key",
      "/a/b/x.key",
      "/x.key/below",
      "/config/a.yml",
      "/world/a/b",
      "/secret",
      "/a/secret/b",
      "/q/sav"
    ])
      expect([yes, matches(yes)]).toEqual([yes, true])
    for (const no of [
      "/",
      "/x.keys",
      "/config/a/b.yml",
      "/other/config/a.yml",
      "/world",
      "/asecret",
      "/a/sv"
    ])
      expect([no, matches(no)]).toEqual([no, false])
  })

  it("a hostile glob takes no time", () => {
    const began = performance.now()
    expect(glob(`${"*a".repeat(50)}b`)("a".repeat(255))).toBe(false)
    expect(performance.now() - began).toBeLessThan(1000)
  })
})
