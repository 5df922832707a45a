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

/** Whether a whole text matches a glob, by every way to read it. */
const matchesSlowly = (pattern: string, text: string, isAtName = true): boolean => {
  if (isAtName && pattern.startsWith("**/")) {
    const rest = pattern.slice(3)
    const cuts = [...text].flatMap((character, at) => (character === "/" ? [text.slice(at + 1)] : []))
    return [text, ...cuts].some((one) => matchesSlowly(rest, one))
  }
  if (pattern === "") return text === ""
  const [stars = ""] = /^\**/.exec(pattern) ?? []
  if (stars !== "") {
    const rest = pattern.slice(stars.length)
    if (matchesSlowly(rest, text, false)) return true
    return (
      text !== "" && (stars.length > 1 || text[0] !== "/") && matchesSlowly(pattern, text.slice(1), false)
    )
  }
  const fits = pattern[0] === "?" ? text !== "" && text[0] !== "/" : pattern[0] === text[0]
  return fits && matchesSlowly(pattern.slice(1), text.slice(1), pattern[0] === "/")
}

/** Whether one of the patterns matches a path or a folder above it, each on its own. */
const matchesNaively = (patterns: ReadonlyArray<string>, names: ReadonlyArray<string>) =>
  names.some((name, index) =>
    patterns.some((pattern) => {
      if (!pattern.includes("/")) return matchesSlowly(pattern, name)
      const isWhole = pattern.startsWith("/") || pattern.startsWith("**/")
      return matchesSlowly(isWhole ? pattern : `/${pattern}`, `/${names.slice(0, index + 1).join("/")}`)
    })
  )

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

  it("patterns match each path as they match it alone, in any order of paths", () => {
    const ownPattern = fc
      .tuple(fc.constantFrom("", "/"), pattern)
      .map(([slash, names]) => `${slash}${names.join("/")}`)
    fc.assert(
      fc.property(fc.array(ownPattern, { minLength: 1, maxLength: 3 }), fc.array(path), (patterns, paths) => {
        const matches = pathPatterns(patterns)
        for (const names of paths)
          expect(matches(`/${names.join("/")}`)).toBe(matchesNaively(patterns, names))
        expect(matches("/")).toBe(false)
      }),
      { numRuns: 2000 }
    )
  })

  it("a path is read once, and each further name of its folder alone", () => {
    const work = { steps: 0 }
    const patterns = ["**/*.log", "**/*.secret", "/a/**/b*"]
    const matches = pathPatterns(patterns, work)
    const folder = `/${"x".repeat(255)}`.repeat(250)
    // Each character is looked at in at most every state of the patterns.
    const most = (length: number) => length * patterns.join("").length * 2
    expect(matches(`${folder}/first`)).toBe(false)
    expect(work.steps).toBeLessThan(most(folder.length + 10))
    for (const [path, matched] of [
      [`${folder}/second.log`, true],
      [`${folder}/third`, false],
      [`${folder}/sub/fourth`, false],
      [`${folder}/sub.log/fifth`, true],
      [`${folder}/sixth`, false]
    ] as const) {
      work.steps = 0
      expect([path, matches(path)]).toEqual([path, matched])
      expect(work.steps).toBeLessThan(most(20))
    }
  })

  it("a pattern with more states than are kept matches as any other", () => {
    const matches = glob(`*a${"?".repeat(20)}`)
    let seed = 1
    for (let round = 0; round < 200; round++) {
      let text = ""
      while (text.length < 300) {
        seed = (seed * 48_271) % 2_147_483_647
        text += seed % 2 === 0 ? "a" : "b"
      }
      expect(matches(text)).toBe(text.at(-21) === "a")
    }
  })
})
