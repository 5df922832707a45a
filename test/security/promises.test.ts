import { readFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { describe, expect, it } from "vitest"

const root = resolve(import.meta.dirname, "../..")
const text = readFileSync(join(root, "SECURITY.md"), "utf8")

/** The rows of the table: a promise, and its tests. */
const rows = [
  ...text.slice(text.indexOf("| Promise | Test |")).matchAll(/^\| (.+?) \| (`test\/.+) \|$/gm)
].map(([, promise = "", tests = ""]) => ({ promise, tests }))

describe("SECURITY.md: promises and their tests", () => {
  it("the table exists", () => {
    expect(rows.length).toBeGreaterThan(30)
  })

  it.each(rows)("$promise", ({ tests }) => {
    const files = [...tests.matchAll(/`(test\/[^`]+)`((?:[:,]? "[^"]+")*)/g)]
    expect(files.length).toBeGreaterThan(0)
    for (const [, file = "", names = ""] of files) {
      const source = readFileSync(join(root, file), "utf8")
      for (const [, name = ""] of names.matchAll(/"([^"]+)"/g)) expect(source).toContain(name)
    }
  })
})
