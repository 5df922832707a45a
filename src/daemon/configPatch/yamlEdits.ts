/** Changes of a YAML document as edits of its text, so that every other line stays as it is written. */
import {
  Document,
  isAlias,
  isMap,
  isNode,
  isPair,
  isScalar,
  isSeq,
  type Pair,
  type ScalarTag,
  type Tags,
  visit,
  type YAMLMap,
  type YAMLSeq
} from "yaml"
import { type Data, isContainer, Written } from "./data.ts"
import { jsonText } from "./json.ts"
import { type Edit, lineEndOf } from "./text.ts"

export type YamlContainer = YAMLMap | YAMLSeq
export const isYamlContainer = (node: unknown): node is YamlContainer => isMap(node) || isSeq(node)

/** A new value of a pair or list item, or new members of a map or list. */
export type Change =
  | {
      readonly container: YamlContainer
      readonly slot: Pair | number
      readonly old: unknown
      readonly value: Data
    }
  | { readonly container: YamlContainer; readonly added: ReadonlyArray<readonly [string | number, Data]> }

const written: ScalarTag = {
  tag: "!written",
  default: true,
  identify: (value) => value instanceof Written,
  resolve: (text) => text,
  stringify: ({ value }) => (value instanceof Written ? value.text : String(value))
}

/** Prints a {@link Written} value in its spelling. */
export const customTags = (tags: Tags): Tags => [written, ...tags]

/** Characters that some YAML parsers refuse or read as a line end outside of an escape. */
const unsafe = /[\p{Cc}\p{Cs}\u2028\u2029\ufeff\ufffe\uffff]/u

const escaped = (text: string): string =>
  text.replace(
    /[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`
  )

/** Returns a value in block style, without indentation. Quotes strings as YAML 1.1 needs: most games read that. */
export const blockLines = (value: unknown, indent: number, style?: string): ReadonlyArray<string> => {
  const doc = new Document(value, { compat: "yaml-1.1", aliasDuplicateObjects: false, customTags })
  visit(doc, {
    Scalar: (_, scalar) => {
      if (typeof scalar.value !== "string") return
      if (unsafe.test(scalar.value) || scalar.value === "=") scalar.type = "QUOTE_DOUBLE"
      else if (style === "QUOTE_SINGLE" || style === "QUOTE_DOUBLE") scalar.type = style
    }
  })
  const text = doc.toString({ lineWidth: 0, blockQuote: false, indent })
  return escaped(text).trimEnd().split("\n")
}

const flowText = (value: Data): string => escaped(jsonText(value, { unit: "", space: " " }))

const isBlock = (value: Data): boolean => isContainer(value) && [...value.keys()].length > 0

/** Returns the end of a node in the text: that of its last value. */
const endOf = (node: unknown): number | undefined => {
  if (!isNode(node)) return undefined
  if (!isYamlContainer(node) || node.flow) return node.range?.[1]
  const last: unknown = node.items.at(-1)
  return isPair(last) ? (endOf(last.value) ?? endOf(last.key)) : endOf(last)
}

const startOf = (node: unknown): number | undefined => (isNode(node) ? node.range?.[0] : undefined)

/** Returns the edits; `undefined` if they cannot be made in this layout. */
export const editsOf = (text: string, changes: ReadonlyArray<Change>): ReadonlyArray<Edit> | undefined => {
  const line = lineEndOf(text)
  /** The indentation that the text uses first. */
  const step = /\n( {1,8})[^\s#-]/.exec(text)?.[1]?.length ?? 2

  const column = (at: number) => at - (text.lastIndexOf("\n", at - 1) + 1)
  /** Returns the end of the line of `at`; a block scalar ends after its line end, which is returned then. */
  const lineEnd = (at: number): number => {
    const feed = text.indexOf("\n", text[at - 1] === "\n" ? at - 1 : at)
    if (feed < 0) return text.length
    return text[feed - 1] === "\r" ? feed - 1 : feed
  }
  const join = (lines: ReadonlyArray<string>, indent: number) => lines.join(line + " ".repeat(indent))

  const addition = (
    container: YamlContainer,
    added: ReadonlyArray<readonly [string | number, Data]>
  ): Edit | undefined => {
    const first: unknown = container.items[0]
    const start = startOf(isPair(first) ? first.key : container)
    const data = isMap(container)
      ? new Map(added.map(([key, value]) => [String(key), value]))
      : added.map(([, value]) => value)
    if (container.flow) {
      const last: unknown = container.items.at(-1)
      const end = isPair(last) ? (endOf(last.value) ?? endOf(last.key)) : endOf(last)
      const at = end ?? (startOf(container) ?? 0) + 1
      const items = jsonText(data, { unit: "", space: " " }).slice(1, -1)
      return { start: at, end: at, text: escaped(end === undefined ? items : `, ${items}`) }
    }
    const end = endOf(container)
    if (start === undefined || end === undefined) return undefined
    const indent = column(start)
    return { start: lineEnd(end), end: lineEnd(end), text: join(["", ...blockLines(data, step)], indent) }
  }

  const replacement = (
    container: YamlContainer,
    slot: Pair | number,
    old: unknown,
    value: Data
  ): Edit | undefined => {
    const [start, end] = [startOf(old), endOf(old)]
    if (!isNode(old) || start === undefined || end === undefined) return undefined
    const bare = isAlias(old) || (old.tag === undefined && old.anchor === undefined)
    const flow = isYamlContainer(old) && old.flow === true && isContainer(value)
    if (container.flow || flow) return bare && start < end ? { start, end, text: flowText(value) } : undefined
    const to = text[end - 1] === "\n" ? lineEnd(end) : end
    const lines = blockLines(value, step, isScalar(old) ? old.type : undefined)
    if (typeof slot === "number") {
      const gap = text[start - 1] === "-" ? " " : ""
      return bare ? { start, end: to, text: gap + join(lines, column(start) + gap.length) } : undefined
    }
    const key = isNode(slot.key) ? slot.key.range : undefined
    const colon = /[ \t]*:/y
    colon.lastIndex = key?.[1] ?? text.length
    if (!colon.test(text)) return undefined
    const between = text.slice(colon.lastIndex, start)
    const below = between.includes("\n")
    if (bare && start < end && isBlock(value) === (below && isYamlContainer(old) && !old.flow)) {
      if (isBlock(value) || !below) return { start, end: to, text: join(lines, column(start)) }
    }
    // the value moves to the colon, and a comment between the two would be lost
    if (between.includes("#")) return undefined
    const moved = isBlock(value) ? join(["", ...lines], column(key?.[0] ?? 0) + step) : ` ${lines.join("")}`
    return { start: colon.lastIndex, end: to, text: moved }
  }

  const edits = changes.map((change) =>
    "added" in change
      ? addition(change.container, change.added)
      : replacement(change.container, change.slot, change.old, change.value)
  )
  return edits.every((edit) => edit !== undefined) ? edits : undefined
}
