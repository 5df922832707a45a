/** YAML values as text: one line, or a block of lines. */
import { isAlias, isMap, isScalar, isSeq, type Node, stringify } from "yaml"
import { type Container, isContainer } from "./yamlNodes.ts"

/** Characters that some YAML parsers refuse or read as a line end outside of an escape. */
const unsafe = /[\p{Cc}\p{Cs}\u2028\u2029\ufeff\ufffe\uffff]/u

const quoted = (text: string): string =>
  JSON.stringify(text).replace(
    /[\p{Cc}\u2028\u2029\ufeff\ufffe\uffff]/gu,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`
  )

/** Quotes also what YAML 1.1 would read as something else: most games do. */
const stringText = (text: string, style: string | undefined): string => {
  if (unsafe.test(text) || style === "QUOTE_DOUBLE" || text === "=") return quoted(text)
  if (style === "QUOTE_SINGLE") return `'${text.replaceAll("'", "''")}'`
  const plain = stringify(text, { compat: "yaml-1.1", lineWidth: 0, blockQuote: false }).slice(0, -1)
  return plain.includes("\n") ? quoted(text) : plain
}

/** A scalar in a block, in quotes of the same kind as `style`, the type of the scalar that it replaces. */
const scalarText = (value: unknown, style?: string): string =>
  typeof value === "string" ? stringText(value, style) : stringify(value, { lineWidth: 0 }).trimEnd()

/** A node in one line, to stand in a flow collection: strings always in double quotes. */
export const flowText = (node: unknown): string => {
  if (isAlias(node)) return `*${node.source} `
  if (isMap(node)) {
    return `{${node.items.map(({ key, value }) => `${flowText(key)}: ${flowText(value)}`).join(", ")}}`
  }
  if (isSeq(node)) return `[${node.items.map(flowText).join(", ")}]`
  const value = isScalar(node) ? node.value : node
  return typeof value === "string" ? quoted(value) : scalarText(value)
}

/** Whether a node takes lines of its own in a block. */
export const isBlock = (node: unknown): node is Container => isContainer(node) && node.items.length > 0

/** A node in one line of a block; a collection that is not empty has none and comes out as flow. */
export const inlineText = (node: unknown, old?: Node): string => {
  if (isAlias(node)) return `*${node.source}`
  if (!isScalar(node)) return flowText(node)
  return scalarText(node.value, isScalar(old) ? old.type : undefined)
}

const indented = (lines: ReadonlyArray<string>, by: string): ReadonlyArray<string> =>
  lines.map((line) => by + line)

/** `key: value`, the value on the same line or below it. */
export const pairLines = (key: unknown, value: unknown, step: string): ReadonlyArray<string> =>
  isBlock(value)
    ? [`${inlineText(key)}:`, ...indented(blockLines(value, step), step)]
    : [`${inlineText(key)}: ${inlineText(value)}`]

/** `- value`; a collection begins on the line of the dash. */
export const itemLines = (value: unknown, step: string): ReadonlyArray<string> => {
  if (!isBlock(value)) return [`- ${inlineText(value)}`]
  const [first = "", ...rest] = blockLines(value, step)
  return [`- ${first}`, ...indented(rest, "  ")]
}

/** Lines of a collection that is not empty, without the indentation of where it stands. */
export const blockLines = (node: Container, step: string): ReadonlyArray<string> =>
  isMap(node)
    ? node.items.flatMap(({ key, value }) => pairLines(key, value, step))
    : node.items.flatMap((item) => itemLines(item, step))
