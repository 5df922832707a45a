/** JSON files, with comments and trailing commas if the file has them. */
import { Result } from "effect"
import { type Node, type ParseError, parseTree, printParseErrorCode } from "jsonc-parser"
import {
  applyFind,
  type Container,
  change,
  type Data,
  type Format,
  isContainer,
  isMap,
  readDeep,
  Written
} from "./data.ts"
import { appended, applyEdits, type Edit, lineEndOf, type Patcher, placeIn, problem } from "./find.ts"

const dataOf = (text: string, root: Node) =>
  readDeep(root, (node, read) => {
    if (node.type === "array") return (node.children ?? []).map(read)
    if (node.type !== "object") {
      const written = text.slice(node.offset, node.offset + node.length)
      return node.type === "number" && /[.eE]/.test(written) ? new Written(node.value, written) : node.value
    }
    const map = new Map<string, Data>()
    for (const { children: [key, value] = [] } of node.children ?? []) {
      if (value !== undefined) map.set(key?.value, read(value))
    }
    return map
  })

interface Part {
  readonly node: Node
  readonly start: number
}

/** Returns the values in an object or array; of equal keys the last one counts, as JSON parsers read them. */
const partsOf = ({ node }: Part): Iterable<readonly [string | number, Part]> =>
  new Map(
    (node.children ?? []).map((child, index) => {
      const [key, value] = child.type === "property" ? (child.children ?? []) : []
      return [key?.value ?? index, { node: value ?? child, start: child.offset }]
    })
  )

/** The layout of a new part; without `line` all of it is on one line. */
interface Layout {
  /** The line end and the indentation of the part. */
  readonly line?: string | undefined
  readonly unit: string
  /** The space after a colon, and after a comma on one line. */
  readonly space: string
}

const inside = (layout: Layout): Layout =>
  layout.line === undefined ? layout : { ...layout, line: layout.line + layout.unit }

const itemsText = (items: Iterable<readonly [string | number, Data]>, layout: Layout): string =>
  [...items]
    .map(([key, value]) => {
      const text = jsonText(value, layout)
      return typeof key === "string" ? `${JSON.stringify(key)}:${layout.space}${text}` : text
    })
    .join(`,${layout.line ?? layout.space}`)

const jsonText = (data: Data, layout: Layout): string => {
  if (data instanceof Written) return data.text
  if (!isContainer(data)) return typeof data === "bigint" ? String(data) : JSON.stringify(data)
  const [open, close] = isMap(data) ? ["{", "}"] : ["[", "]"]
  const within = inside(layout)
  const items = itemsText(data.entries(), within)
  return items === "" ? open + close : open + (within.line ?? "") + items + (layout.line ?? "") + close
}

/** The text behind an item to the end of its line: a comma perhaps, and a comment. */
const restOfLine = /[ \t]*(,)?[ \t]*(?:\/\/[^\r\n]*|\/\*[^\r\n]*?\*\/[ \t]*)?(?=[\r\n])/y

const editsOf = (text: string, root: Node, from: Container, to: Container): ReadonlyArray<Edit> => {
  const edits: Array<Edit> = []
  const end = lineEndOf(text)
  const pretty = /[\r\n]/.test(text.trim()) || root.children?.length === 0
  const oneLine: Layout = {
    unit: /[\r\n]([ \t]+)[^\s/*]/.exec(text)?.[1] ?? "  ",
    space: pretty || text.includes('": ') ? " " : ""
  }

  /** Returns the layout of an item at `offset`: on lines of its own if the item begins its line. */
  const layoutAt = (offset: number): Layout => {
    if (!pretty) return oneLine
    const before = text.slice(text.lastIndexOf(end.slice(-1), offset - 1) + 1, offset)
    return before.trim() === "" ? { ...oneLine, line: end + before } : oneLine
  }

  const add: Format<Part>["add"] = ({ node, start }, members) => {
    const last = node.children?.at(-1)
    const close = node.offset + node.length - 1
    if (last === undefined) {
      // behind a comment, if there is one; that needs its line
      const at = text.slice(0, close).trimEnd().length
      const layout = at > node.offset + 1 && pretty ? { line: end, ...layoutAt(start) } : layoutAt(start)
      const within = inside(layout)
      edits.push({
        start: at,
        end: close,
        text: (within.line ?? "") + itemsText(members, within) + (layout.line ?? "")
      })
      return
    }
    const layout = layoutAt(last.offset)
    const added = (layout.line ?? layout.space) + itemsText(members, layout)
    const rest = layout.line === undefined ? undefined : restOfLine
    edits.push(...appended(text, last.offset + last.length, added, rest))
  }

  const format: Format<Part> = {
    parts: partsOf,
    look: (_, old, wanted) => (old === wanted ? "keep" : "compare"),
    replace: ({ node, start }, value) =>
      edits.push({
        start: node.offset,
        end: node.offset + node.length,
        text: jsonText(value, layoutAt(start))
      }),
    add
  }
  change(format, { node: root, start: root.offset }, from, to)
  return edits
}

const invalid = (text: string, { error, offset }: ParseError) => {
  const what = printParseErrorCode(error)
    .replace(/\B[A-Z]/g, " $&")
    .toLowerCase()
  return problem(`it is not valid JSON: ${what} at ${placeIn(text, offset)}`)
}

/** Patches a JSON file with keys as in `applyFind`. Order, comments, layout and number formats stay. */
export const patchJson: Patcher = (text, find) => {
  if (text === undefined || text.trim() === "") {
    return Result.map(applyFind(undefined, find), ({ data, unmatched }) => ({
      text: `${jsonText(data, { line: "\n", unit: "  ", space: " " })}\n`,
      unmatched
    }))
  }
  const errors: Array<ParseError> = []
  const root = parseTree(text, errors, { allowTrailingComma: true })
  if (errors[0] !== undefined) return invalid(text, errors[0])
  return Result.gen(function* () {
    const data = root === undefined ? null : yield* dataOf(text, root)
    if (root === undefined || !isContainer(data))
      return yield* problem("its top level is neither an object nor an array")
    const { data: wanted, unmatched } = yield* applyFind(data, find)
    return { text: applyEdits(text, editsOf(text, root, data, wanted)), unmatched }
  })
}
