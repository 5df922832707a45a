import { readFileSync } from "node:fs"
import { resolve } from "node:path"
import { describe, expect, it } from "vitest"
import { commandSettings } from "../src/config/command.ts"
import { nodeSettings } from "../src/config/node.ts"
import { settings } from "../src/config/service.ts"

const readme = readFileSync(resolve(import.meta.dirname, "../README.md"), "utf8")

type Listed = Readonly<Record<"name" | "standard" | "meaning" | "may", string>>

/** The table of settings as the README must have it. */
const table = (all: Readonly<Record<string, Listed>>) =>
  [
    "| Setting | Default | Meaning | May be |",
    "|---|---|---|---|",
    ...Object.values(all).map(
      ({ name, standard, meaning, may }) =>
        `| \`${name}\` | ${standard === "" ? "" : `\`${standard.replaceAll(",", ", ")}\``} | ${meaning} | ${may.replaceAll("|", "\\|")} |`
    )
  ].join("\n")

describe("README", () => {
  it("lists every setting with its default, meaning and what it may be", () => {
    const listed = /<!-- settings:begin -->\n([\s\S]*?)\n?<!-- settings:end -->/.exec(readme)?.[1]
    expect(listed).toBe(table(settings))
  })

  it("lists every setting of a command", () => {
    const listed = /<!-- command-settings:begin -->\n([\s\S]*?)\n?<!-- command-settings:end -->/.exec(
      readme
    )?.[1]
    expect(listed).toBe(table(commandSettings))
  })

  it("lists every setting of a node", () => {
    const listed = /<!-- node-settings:begin -->\n([\s\S]*?)\n?<!-- node-settings:end -->/.exec(readme)?.[1]
    expect(listed).toBe(table(nodeSettings))
  })
})
