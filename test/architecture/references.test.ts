import { globSync } from "node:fs"
import { describe, expect, it } from "vitest"
import { root, textOf } from "../support/docs.ts"

/** The numbers of all chapters and sections of the specification. */
const sections = globSync("docs/spec/*.md", { cwd: root }).flatMap((path) =>
  [...textOf(path).matchAll(/^##? (\d+(?:\.\d+)?)\.? /gm)].map(([, number = ""]) => number)
)

/** The sections that a text cites, such as "spec 3.5, 3.9"; a citation may continue on the next line of a comment. */
const citedIn = (text: string) =>
  [...text.matchAll(/\bspec(?: |\s+\*\s+|\s+\/\/\s+)(\d+(?:\.\d+)?(?:, \d+(?:\.\d+)?)*)/g)].flatMap(
    ([, numbers = ""]) => numbers.split(", ")
  )

const files = globSync(["src/**/*.{ts,tsx,md}", "test/**/*.ts", "scripts/*.ts"], { cwd: root })

describe("references to the specification", () => {
  it("each section has a number of its own", () => {
    expect(sections.length).toBeGreaterThan(80)
    expect(sections.filter((number, at) => sections.indexOf(number) !== at)).toEqual([])
  })

  it("every cited section exists", () => {
    const cited = files.flatMap((path) => citedIn(textOf(path)).map((number) => ({ path, number })))
    expect(cited.length).toBeGreaterThan(400)
    expect(cited.filter(({ number }) => !sections.includes(number))).toEqual([])
  })

  it("no file cites a document outside the repository", () => {
    const outside =
      /\b(?:decisions|contract),? (?:section )?\d|\b(?:life|operators|application-api|node-protocol)\.md/
    const cites = files.filter((path) => path !== "test/architecture/references.test.ts")
    expect(cites.filter((path) => outside.test(textOf(path)))).toEqual([])
  })
})
