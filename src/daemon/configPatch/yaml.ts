/** YAML files. */
import { isDeepStrictEqual } from "node:util"
import { Result } from "effect"
import { type Document, isScalar, type Node, parseDocument } from "yaml"
import { problem, startsList } from "./find.ts"
import type { Find, Patcher, PatchProblem } from "./PatchProblem.ts"
import { lineEndOf } from "./text.ts"
import { applyFind } from "./tree.ts"
import { comparable, isContainer } from "./yamlNodes.ts"
import { endsOf, splice } from "./yamlSplice.ts"
import { blockLines, isBlock } from "./yamlText.ts"
import { yamlTree } from "./yamlTree.ts"

/** Duplicate keys pass: looking for them takes quadratic time, and the games read the last one. */
const read = (text: string): Document =>
  parseDocument(text, { uniqueKeys: false, intAsBigInt: true, logLevel: "error" })

/** Whether the values are the same; false also where that cannot be told, for instance for too many aliases. */
const sameValues = (a: Document, b: Document): boolean => {
  const values = (doc: Document): unknown => comparable(doc.toJS({ mapAsMap: true }))
  return Result.getOrElse(
    Result.try(() => isDeepStrictEqual(values(a), values(b))),
    () => false
  )
}

const isSound = (text: string, wanted: Document): boolean => {
  const made = read(text)
  return made.errors.length === 0 && sameValues(made, wanted)
}

const endWith = (text: string, end: string): string =>
  text === "" || /[\r\n]$/.test(text) ? text : text + end

/**
 * The text with the changes: edited in place, or, where the layout does not allow it, printed anew with its comments
 * and order. Either is read again, and only a text with just the values that it is to have is taken.
 */
const print = (text: string, doc: Document, edited: string | undefined): string | undefined => {
  if (edited !== undefined && isSound(edited, doc)) return edited
  const end = lineEndOf(text)
  const printed = Result.getOrUndefined(
    Result.try(() => doc.toString({ lineWidth: 0, blockQuote: "literal" }).replaceAll("\n", end))
  )
  return printed !== undefined && isSound(printed, doc) ? printed : undefined
}

const patch = (text: string, find: Find): Result.Result<string, PatchProblem> => {
  const doc = read(text)
  const error = doc.errors[0]
  if (error !== undefined) {
    return error.code === "MULTIPLE_DOCS"
      ? problem("it holds more than one document")
      : problem(`it is not valid YAML: ${error.message.split("\n")[0]}`)
  }
  const empty = doc.contents === null || (isScalar(doc.contents) && doc.contents.value === null)
  if (!empty && !isContainer(doc.contents)) return problem("its top level is neither a map nor a list")
  const ends = empty || doc.contents === null ? new Map<Node, number>() : endsOf(doc.contents)
  if (empty) doc.contents = doc.createNode(startsList(Object.keys(find)) ? [] : {})
  const root = doc.contents
  if (root === null) return problem("it cannot be read")
  const { tree, changes, problem: refused } = yamlTree(doc)
  const failed = applyFind(tree, root, find)
  if (failed !== undefined) return Result.fail(failed)
  const reason = refused()
  if (reason !== undefined) return problem(reason)
  if (empty ? !isBlock(root) : changes.length === 0) return Result.succeed(text)
  const end = lineEndOf(text)
  const edited =
    empty && isBlock(root)
      ? endWith(text, end) + blockLines(root, "  ").join(end) + end
      : splice(text, ends, changes)
  const printed = print(text, doc, edited)
  return printed === undefined ? problem("the result would not be valid YAML") : Result.succeed(printed)
}

/**
 * YAML with all comments, order and layout; keys: see `applyFind`. Only what is named changes: where a value stands
 * for others through an alias, those get copies of what it was. An empty file counts as a missing one.
 */
export const patchYaml: Patcher = (text, find) => patch(text ?? "", find)
