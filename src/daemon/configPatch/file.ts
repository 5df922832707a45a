import { Result } from "effect"
import { flatText, leavesOf, type Patcher, problem, shown } from "./find.ts"
import { joinLines, splitLines } from "./text.ts"

/**
 * Replaces each line that starts with a key by the key's value; of several keys that fit, the longest decides. Keys
 * are literal. A line that already is one of the values stays, so that patching twice is patching once. No line is
 * added, and a missing file stays missing.
 */
export const patchFile: Patcher = (text, find) => {
  const leaves = leavesOf(find)
  if (Result.isFailure(leaves)) return Result.fail(leaves.failure)
  const wanted = leaves.success.map(({ path, value }) => ({ path, value: flatText(value) }))
  for (const { path, value } of wanted) {
    const [key, ...nested] = path
    if (nested.length > 0) return problem(`the key ${shown(key)} has a map, which a line cannot hold`)
    if (/[\r\n]/.test(value)) return problem(`the value of ${shown(key)} has a line break`)
  }
  const lines = splitLines(text ?? "")
  const values = new Set(wanted.map((leaf) => leaf.value))
  const byLength = wanted.toSorted((a, b) => b.path[0].length - a.path[0].length)
  const patched = lines.map((line) => {
    if (values.has(line.text)) return line
    const leaf = byLength.find(({ path }) => line.text.startsWith(path[0]))
    return leaf === undefined ? line : { text: leaf.value, end: line.end }
  })
  // an empty file is one empty line
  const present = new Set(text === "" ? [""] : patched.map((line) => line.text))
  const reason = text === undefined ? "the file does not exist" : "no line starts with it"
  const unmatched = wanted.flatMap(({ path: [key], value }) => (present.has(value) ? [] : [{ key, reason }]))
  return Result.succeed({ text: text === undefined ? undefined : joinLines(patched), unmatched })
}
