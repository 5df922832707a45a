/** Changes of a YAML document as edits of its text, so that all that was not changed stays as it was written. */
import { isAlias, isNode, isPair, isScalar, type Node, type Range } from "yaml"
import { lineEndOf } from "./text.ts"
import { isContainer, valueIn } from "./yamlNodes.ts"
import { blockLines, flowText, inlineText, isBlock, itemLines, pairLines } from "./yamlText.ts"
import type { Change } from "./yamlTree.ts"

interface Edit {
  readonly start: number
  readonly end: number
  readonly text: string
  /** Order of insertions at one place: replaced values before additions, deeper additions before outer ones. */
  readonly rank: number
}

/** Where each collection ends in the text of an unchanged document, without what follows its last value. */
export const endsOf = (root: Node): ReadonlyMap<Node, number> => {
  const ends = new Map<Node, number>()
  const endOf = (node: unknown): number | undefined => {
    if (!isContainer(node)) return isScalar(node) || isAlias(node) ? node.range?.[1] : undefined
    let end: number | undefined
    for (const item of node.items) end = isPair(item) ? (endOf(item.value) ?? endOf(item.key)) : endOf(item)
    if (node.flow) end = node.range?.[1]
    if (end !== undefined) ends.set(node, end)
    return end
  }
  endOf(root)
  return ends
}

/** The indentation that the text uses first; two spaces where it has none. */
const stepOf = (text: string): string => /\n( {1,8})[^\s#-]/.exec(text)?.[1] ?? "  "

const rangeOf = (node: unknown): Range | undefined => (isNode(node) ? (node.range ?? undefined) : undefined)

/** The edited text; undefined where the layout is one that this does not know how to edit. */
export const splice = (
  text: string,
  ends: ReadonlyMap<Node, number>,
  changes: ReadonlyArray<Change>
): string | undefined => {
  const line = lineEndOf(text)
  const step = stepOf(text)

  const lineStart = (at: number) => text.lastIndexOf("\n", at - 1) + 1
  /** End of the line that `at` is on; a block scalar ends after its line end, and that line is meant. */
  const lineEnd = (at: number): number => {
    const from = text[at - 1] === "\n" ? at - 1 : at
    const feed = text.indexOf("\n", from)
    if (feed < 0) return text.length
    return text[feed - 1] === "\r" ? feed - 1 : feed
  }
  const column = (at: number) => at - lineStart(at)
  const join = (lines: ReadonlyArray<string>, indent: string) =>
    lines.map((each) => line + indent + each).join("")
  const afterColon = (key: unknown): number | undefined => {
    const range = rangeOf(key)
    if (range === undefined) return undefined
    const gap = /[ \t]*:/y
    gap.lastIndex = range[1]
    return gap.test(text) ? gap.lastIndex : undefined
  }

  const addition = ({ container, slot }: Change): ReadonlyArray<Edit> | undefined => {
    const first: unknown = container.items[0]
    const end = ends.get(container)
    const start = rangeOf(container)?.[0]
    if (start === undefined || end === undefined) return undefined
    const value = valueIn(container, slot)
    if (container.flow) {
      const added = typeof slot === "number" ? flowText(value) : `${flowText(slot.key)}: ${flowText(value)}`
      const last = container.items.findLast((item) => rangeOf(isPair(item) ? item.key : item) !== undefined)
      const tail = isPair(last) ? (rangeOf(last.value) ?? rangeOf(last.key)) : rangeOf(last)
      const at = tail?.[1] ?? start + 1
      return [{ start: at, end: at, text: tail === undefined ? added : `, ${added}`, rank: 1 }]
    }
    const origin = isPair(first) ? rangeOf(first.key)?.[0] : start
    if (origin === undefined) return undefined
    const indent = column(origin)
    const lines = typeof slot === "number" ? itemLines(value, step) : pairLines(slot.key, value, step)
    const at = lineEnd(end)
    return [{ start: at, end: at, text: join(lines, " ".repeat(indent)), rank: 1 + 1 / (indent + 2) }]
  }

  const replacement = ({ container, slot }: Change, old: Node): ReadonlyArray<Edit> | undefined => {
    const range = old.range
    if (!range) return undefined
    const value = valueIn(container, slot)
    const [start] = range
    const end = ends.get(old) ?? range[1]
    const bare = isAlias(old) || (old.tag === undefined && old.anchor === undefined)
    const edit = (from: number, to: number, written: string): Edit => ({
      start: from,
      end: to,
      text: written,
      rank: 0
    })
    if (container.flow) return bare && start < end ? [edit(start, end, flowText(value))] : undefined

    const colon = typeof slot === "number" ? undefined : afterColon(slot.key)
    const origin = typeof slot === "number" ? undefined : rangeOf(slot.key)?.[0]
    if (typeof slot !== "number" && (colon === undefined || origin === undefined)) return undefined
    const oldBlock = isContainer(old) && !old.flow
    if (oldBlock) {
      if (!bare) return undefined
      if (isBlock(value)) {
        const [first = "", ...rest] = blockLines(value, step)
        return [edit(start, lineEnd(end), first + join(rest, " ".repeat(column(start))))]
      }
      if (colon === undefined) return [edit(start, lineEnd(end), inlineText(value))]
      if (lineStart(start) <= colon) return undefined
      const above = lineEnd(lineStart(start) - 1)
      return [edit(colon, colon, ` ${inlineText(value)}`), edit(above, lineEnd(end), "")]
    }

    const written = isBlock(value) ? undefined : inlineText(value, old)
    const to = text[end - 1] === "\n" ? lineEnd(end) : end
    if (colon === undefined) {
      // an item of a list: everything on the line of its dash
      if (!bare) return undefined
      const gap = text[start - 1] === "-" ? " " : ""
      return [edit(start, to, gap + (written ?? flowText(value)))]
    }
    if (written !== undefined && bare && start < end) return [edit(start, to, written)]
    // the value goes to where the colon is; a comment between the two would be lost
    if (text.slice(colon, start).includes("#")) return undefined
    const block = isBlock(value) ? join(blockLines(value, step), " ".repeat(column(origin ?? 0)) + step) : ""
    return [edit(colon, to, written === undefined ? block : ` ${written}`)]
  }

  const edits: Array<Edit> = []
  for (const change of changes) {
    const made = change.old === undefined ? addition(change) : replacement(change, change.old)
    if (made === undefined) return undefined
    edits.push(...made)
  }
  return applyEdits(text, edits)
}

const applyEdits = (text: string, edits: ReadonlyArray<Edit>): string | undefined => {
  // the sort is stable: additions to one collection keep their order
  const sorted = edits.toSorted((a, b) => a.start - b.start || a.rank - b.rank || a.end - b.end)
  const parts: Array<string> = []
  let at = 0
  for (const edit of sorted) {
    if (edit.start < at) return undefined
    parts.push(text.slice(at, edit.start), edit.text)
    at = edit.end
  }
  parts.push(text.slice(at))
  return parts.join("")
}
