import { existsSync, globSync, readdirSync } from "node:fs"
import { dirname, join } from "node:path"
import { Effect } from "effect"
import { describe, expect, it } from "vitest"
import { commandsPage } from "../../scripts/commandsPage.ts"
import { metricsPage, settingsPage } from "../../scripts/docs.ts"
import { routesPage } from "../../scripts/routesPage.ts"
import { systemExample } from "../../src/contract/api/examples.ts"
import { schemaVersion } from "../../src/controlPlane/store/migrations/migrate.ts"
import { documents, root, textOf } from "../support/docs.ts"
import { blocksOf, codeOf, tableOf } from "../support/markdown.ts"

/** Returns the lines of a document outside its code blocks. */
const prose = (path: string) =>
  textOf(path)
    .replaceAll(/^```[\s\S]*?^```$/gm, "")
    .split("\n")

/** Returns the anchor that GitHub gives a heading. */
const anchorOf = (heading: string) =>
  heading
    .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .toLowerCase()
    .replaceAll(/[^\w\- ]/g, "")
    .replaceAll(" ", "-")

const anchorsOf = (path: string) =>
  prose(path).flatMap((line) => {
    const heading = /^#+ (.*)$/.exec(line)?.[1]
    return heading === undefined ? [] : [anchorOf(heading)]
  })

const linksOf = (path: string) =>
  [
    ...prose(path)
      .join("\n")
      .matchAll(/\]\(([^)\s]+)\)/g)
  ].flatMap(([, target = ""]) => (/^https?:/.test(target) ? [] : [target]))

/** Returns the paragraphs and list items with more lines than `most`; tables and headings are skipped. */
const longParagraphs = (path: string, most: number) => {
  const paragraphs: Array<Array<string>> = [[]]
  for (const line of prose(path)) {
    if (/^(\s*(- |\d+\. )|\||#|\s*$)/.test(line)) paragraphs.push([])
    if (!/^(\||#|\s*$)/.test(line)) paragraphs.at(-1)?.push(line)
  }
  return paragraphs.filter((lines) => lines.length > most).map(([first]) => first)
}

const tests = globSync("test/**/*.test.ts", { cwd: root }).map((path) => textOf(path))

describe("documents", () => {
  it("the README has at most 150 lines", () => {
    expect(textOf("README.md").trimEnd().split("\n").length).toBeLessThanOrEqual(150)
  })

  it("docs/settings.md, docs/metrics.md and docs/routes.md equal the output of `npm run docs`", () => {
    expect(textOf("docs/settings.md")).toBe(settingsPage)
    expect(textOf("docs/metrics.md")).toBe(metricsPage)
    expect(textOf("docs/routes.md")).toBe(routesPage)
  })

  it("docs/commands.md equals the output of `npm run docs`", async () => {
    expect(textOf("docs/commands.md")).toBe(await Effect.runPromise(commandsPage))
  })

  it("every command in docs/commands.md has two examples of its own", () => {
    const sections = textOf("docs/commands.md")
      .split(/^#{2,3} muster /m)
      .slice(1)
    const commands = sections.filter((text) => /^`muster [^`]*`$/m.test(text))
    expect(commands.length).toBeGreaterThan(50)
    const lacking = commands.filter((text) => {
      const name = `muster ${text.split("\n", 1)[0]}`
      const [example = ""] = /```text\n[\s\S]*?```/.exec(text) ?? []
      return (
        example.split("\n").filter((line) => line.includes("muster ")).length < 2 || !example.includes(name)
      )
    })
    expect(lacking.map((text) => text.split("\n", 1)[0])).toEqual([])
  })

  it.each(documents)("every command of %s is printed in a block that a test runs", (path) => {
    const untested = blocksOf(textOf(path))
      .filter(({ language }) => language === "sh")
      .filter(({ title }) => !tests.some((text) => text.includes(`printed("${path}", "${title}")`)))
    expect(untested).toEqual([])
  })

  it.each(documents)("every link of %s points to a file and a heading that exist", (path) => {
    const dead = linksOf(path).filter((target) => {
      const [file = "", anchor = ""] = target.split("#")
      const to = file === "" ? path : join(dirname(path), file)
      return !existsSync(join(root, to)) || (anchor !== "" && !anchorsOf(to).includes(anchor))
    })
    expect(dead).toEqual([])
  })

  it.each(documents)("no paragraph of %s has more than five lines", (path) => {
    expect(longParagraphs(path, 5)).toEqual([])
  })

  it("the sample of `db status` in docs/database.md has the schema of this version", () => {
    expect(textOf("docs/database.md")).toContain(
      `Schema: ${schemaVersion} (this version has ${schemaVersion}), up to date`
    )
  })

  it("the client, the lock file, the documents and the OpenAPI example have the version of package.json", () => {
    const { version } = JSON.parse(textOf("package.json"))
    const { packages } = JSON.parse(textOf("package-lock.json"))
    const versions = ["", "src/client"].map((path) => packages[path].version)
    versions.push(JSON.parse(textOf("src/client/package.json")).version, systemExample.version)
    expect(versions).toEqual(versions.map(() => version))
    const printed = documents.flatMap((path) =>
      [...textOf(path).matchAll(/muster-(?:client-)?(\d+\.\d+\.\d+)\.tgz/g)].map(([, found]) => ({
        path,
        found
      }))
    )
    expect(printed.length).toBeGreaterThan(3)
    expect(printed.filter(({ found }) => found !== version)).toEqual([])
  })

  it("`npm start`, the image, the units and tests run services with the same options of Node.js", () => {
    const given = globSync(
      ["package.json", "deploy/{docker/Dockerfile,systemd/*.service}", "test/support/Service.ts"],
      { cwd: root }
    ).map((path) => [
      path,
      textOf(path)
        .match(/--max-semi-space-size=\d+/g)
        ?.join()
    ])
    expect(given.length).toBe(6)
    for (const [path, options] of given) expect(options, path).toBe("--max-semi-space-size=8")
  })

  it("docs/architecture.md names files that exist", () => {
    const named = [...textOf("docs/architecture.md").matchAll(/src\/[\w/]+\.ts/g)].map(([path]) => path)
    expect(named.length).toBeGreaterThan(30)
    expect(named.filter((path) => !existsSync(join(root, path)))).toEqual([])
  })

  it("docs/internals.md names what the linked files export", () => {
    const text = textOf("docs/internals.md")
    const rows = [...tableOf(text, "server"), ...tableOf(text, "node")]
    expect(rows.length).toBeGreaterThan(20)
    for (const [names = "", , link = ""] of rows) {
      const path = join("docs", /\]\(([^)]+)\)/.exec(link)?.[1] ?? "")
      for (const [, name = ""] of names.matchAll(/`(\w+)`/g)) {
        expect(textOf(path), path).toMatch(
          new RegExp(`^export (?:class|const|interface|type) ${name}\\b`, "m")
        )
      }
    }
  })

  it("docs/development.md lists every folder of src and every dependency; its commands exist", () => {
    const text = textOf("docs/development.md")
    const listed = tableOf(text, "folders").map(([folder]) => codeOf(folder) ?? "")
    const folders = readdirSync(join(root, "src"), { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => `src/${name}`)
    expect(listed.toSorted()).toEqual([...folders, "test"].toSorted())
    const { dependencies, devDependencies, scripts } = JSON.parse(textOf("package.json"))
    const named = [...text.matchAll(/`npm (?:run ([a-z:]+)|test)[^`]*`/g)].map(([, name = "test"]) => name)
    expect(named.filter((name) => !Object.hasOwn(scripts, name))).toEqual([])
    const packages = Object.keys({ ...dependencies, ...devDependencies })
    expect(packages.filter((name) => !text.includes(`\`${name}\``))).toEqual([])
  })
})
