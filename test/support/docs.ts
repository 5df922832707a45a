/** Commands and files printed in the documents, for tests that run them. */
import { globSync, readFileSync } from "node:fs"
import { join, resolve } from "node:path"
import { assert } from "vitest"
import { type Block, blocksOf } from "./markdown.ts"

export const root = resolve(import.meta.dirname, "../..")

/** The text of a document, by its path in the repository. */
export const textOf = (path: string): string => readFileSync(join(root, path), "utf8")

/** Paths of all documents: the README, those beside it, and `docs`. */
export const documents: ReadonlyArray<string> = [
  "README.md",
  "CONTRIBUTING.md",
  "CHANGELOG.md",
  "SECURITY.md",
  "blueprints/README.md",
  "software/README.md",
  "src/client/README.md",
  ...globSync("docs/**/*.md", { cwd: root })
]

/** The code block of a document with this title after its language; fails the test unless there is exactly one. */
export const printed = (path: string, name: string): string => {
  const found = blocksOf(textOf(path)).filter(({ title }: Block) => title === name)
  assert.lengthOf(found, 1, `${path} has blocks named ${name}`)
  return found[0]?.code ?? ""
}
