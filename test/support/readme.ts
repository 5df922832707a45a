/** What the README prints, for tests that do it. */
import { readFileSync } from "node:fs"
import { resolve } from "node:path"

const readme = readFileSync(resolve(import.meta.dirname, "../../README.md"), "utf8")

/** Code blocks of one language, in order, also those in lists; of one part, by its heading or its markers. */
export const readmeBlocks = (language: string, part: { readonly from: string; readonly to: string }) => {
  const begin = readme.indexOf(part.from)
  const end = readme.indexOf(part.to, begin + part.from.length)
  const text = begin < 0 || end < 0 ? "" : readme.slice(begin, end)
  return [...text.matchAll(/^( *)```(\w+)\n([\s\S]*?)^ *```$/gm)].flatMap(([, indent, its, code]) =>
    its === language && code !== undefined ? [code.replaceAll(new RegExp(`^${indent}`, "gm"), "")] : []
  )
}

/** A command that the README prints within its text, by how it begins; those that there are more often are not. */
export const readmeCommand = (beginning: string): string => {
  const commands = new Set(
    [...readme.matchAll(/`([^`\n]+)`/g)].flatMap(([, code = ""]) =>
      code.startsWith(beginning) ? [code] : []
    )
  )
  const [only = "", ...others] = commands
  return others.length === 0 ? only : ""
}
