import { Result } from "effect"
import { problem, startsList } from "./find.ts"
import { jsonTree, printJson, readJson } from "./jsonTree.ts"
import type { Patcher } from "./PatchProblem.ts"
import { lineEndOf } from "./text.ts"
import { applyFind } from "./tree.ts"

/** The reason in one line: the parser quotes the text around the place where it stopped. */
const reasonOf = (cause: unknown): string =>
  cause instanceof Error ? cause.message.replace(/\s+/g, " ").slice(0, 200) : String(cause)

/**
 * JSON, keeping order, indentation and number formats; new parts are laid out like their neighbours. Keys: see
 * `applyFind`. An empty file counts as a missing one.
 */
export const patchJson: Patcher = (text, find) => {
  const blank = text === undefined || text.trim() === ""
  const source = blank ? (startsList(Object.keys(find)) ? "[]\n" : "{}\n") : text
  const parsed = Result.try({ try: (): unknown => JSON.parse(source), catch: reasonOf })
  if (Result.isFailure(parsed)) return problem(`it is not valid JSON: ${parsed.failure}`)
  if (typeof parsed.success !== "object" || parsed.success === null) {
    return problem("its top level is neither an object nor an array")
  }
  const root = readJson(source)
  if (Result.isFailure(root)) return Result.fail(root.failure)
  const lead = source.slice(0, source.search(/\S/))
  const trail = source.slice(source.trimEnd().length)
  const body = source.trim()
  const pretty = body.length === 2 || /[\r\n]/.test(body)
  const tree = jsonTree({
    line: pretty ? lineEndOf(source) : "",
    unit: /[\r\n]([ \t]+)\S/.exec(body)?.[1] ?? "  ",
    space: pretty ? " " : ""
  })
  const failed = applyFind(tree, root.success, find)
  return failed === undefined ? Result.succeed(lead + printJson(root.success) + trail) : Result.fail(failed)
}
