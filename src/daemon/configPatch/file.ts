import { Result } from "effect"
import { leavesOf, problem, shown } from "./find.ts"
import type { Patcher } from "./PatchProblem.ts"
import { joinLines, splitLines } from "./text.ts"

/**
 * A line that starts with a key is replaced by the key's value; of several keys that fit, the longest decides.
 * Keys are literal. A line that already is one of the values stays, so that patching twice is patching once. No
 * line is added, and a missing file stays missing.
 */
export const patchFile: Patcher = (text, find) => {
  const leaves = leavesOf(find)
  if (Result.isFailure(leaves)) return Result.fail(leaves.failure)
  for (const { path, value } of leaves.success) {
    const [key, ...nested] = path
    if (nested.length > 0) return problem(`the key ${shown(key)} has a map, which a line cannot hold`)
    if (/[\r\n]/.test(value)) return problem(`the value of ${shown(key)} has a line break`)
  }
  if (text === undefined) return Result.succeed(undefined)
  const values = new Set(leaves.success.map((leaf) => leaf.value))
  const byLength = leaves.success.toSorted((a, b) => b.path[0].length - a.path[0].length)
  const lines = splitLines(text).map((line) => {
    if (values.has(line.text)) return line
    const leaf = byLength.find(({ path }) => line.text.startsWith(path[0]))
    return leaf === undefined ? line : { text: leaf.value, end: line.end }
  })
  return Result.succeed(joinLines(lines))
}
