/** JSON as a tree that prints exactly the text that it was read from, but for what was changed. */
import { isDeepStrictEqual } from "node:util"
import { Result, type Schema } from "effect"
import { isList, isMap, problem } from "./find.ts"
import type { PatchProblem } from "./PatchProblem.ts"
import type { Tree } from "./tree.ts"

export type JsonNode = JsonScalar | JsonContainer

interface JsonScalar {
  readonly type: "scalar"
  readonly raw: string
}

interface JsonContainer {
  readonly type: "map" | "list"
  readonly depth: number
  readonly items: Array<JsonItem>
  /** Members of a map by key; of equal keys the last one counts, as everywhere in JSON. */
  readonly members: Map<string, JsonItem>
  /** White space before the closing bracket. */
  tail: string
  /** Layout of its items, where the container is new. */
  readonly layout?: JsonLayout
}

/** White space, key and colon as written, value, white space. In a list `key` and `colon` are empty. */
interface JsonItem {
  readonly before: string
  readonly key: string
  readonly colon: string
  value: JsonNode
  after: string
}

/** How new parts are laid out. */
export interface JsonLayout {
  /** Line end; empty: all in one line. */
  readonly line: string
  /** One indentation. */
  readonly unit: string
  /** Space behind colons, and behind commas in one line. */
  readonly space: string
}

const MAX_DEPTH = 256

/** Reads text that is known to be JSON; only its depth is checked here. */
export const readJson = (text: string): Result.Result<JsonNode, PatchProblem> => {
  const tokens = /[ \t\r\n]*([{}[\],:]|[^ \t\r\n{}[\],:"]+)?/y
  let at = 0
  let tooDeep = false

  const space = (): string => {
    const start = at
    while (at < text.length && " \t\r\n".includes(text.charAt(at))) at++
    return text.slice(start, at)
  }
  const string = (): string => {
    const start = at++
    while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1
    return text.slice(start, ++at)
  }
  const value = (depth: number): JsonNode => {
    const open = text[at]
    if (open === '"') return { type: "scalar", raw: string() }
    if (open === "{" || open === "[") return container(open === "{" ? "map" : "list", depth)
    tokens.lastIndex = at
    const raw = tokens.exec(text)?.[0] ?? ""
    at += raw.length
    return { type: "scalar", raw }
  }
  const container = (type: "map" | "list", depth: number): JsonContainer => {
    const node: JsonContainer = { type, depth, items: [], members: new Map(), tail: "" }
    tooDeep ||= depth > MAX_DEPTH
    at++
    while (!tooDeep && at < text.length) {
      const before = space()
      if (text[at] === "}" || text[at] === "]") {
        node.tail = before
        at++
        break
      }
      const key = type === "map" ? string() : ""
      const colon = type === "map" ? space() + text.charAt(at++) + space() : ""
      const item: JsonItem = { before, key, colon, value: value(depth + 1), after: "" }
      node.items.push(item)
      if (type === "map") node.members.set(String(JSON.parse(key)), item)
      const after = space()
      if (text[at] === ",") {
        item.after = after
        at++
      } else at -= after.length
    }
    return node
  }

  space()
  const root = value(0)
  return tooDeep ? problem(`it is nested deeper than ${MAX_DEPTH} levels`) : Result.succeed(root)
}

export const printJson = (node: JsonNode): string => {
  const parts: Array<string> = []
  const print = (current: JsonNode) => {
    if (current.type === "scalar") {
      parts.push(current.raw)
      return
    }
    parts.push(current.type === "map" ? "{" : "[")
    current.items.forEach((item, n) => {
      parts.push(n === 0 ? "" : ",", item.before, item.key, item.colon)
      print(item.value)
      parts.push(item.after)
    })
    parts.push(current.tail, current.type === "map" ? "}" : "]")
  }
  print(node)
  return parts.join("")
}

const breakOf = ({ line, unit }: JsonLayout, depth: number) => (line === "" ? "" : line + unit.repeat(depth))

/** Layout of what is added behind `last`: in one line with it, or on lines of its own. */
const layoutBehind = (last: JsonItem, layout: JsonLayout): JsonLayout =>
  /[\r\n]/.test(last.before)
    ? layout
    : { ...layout, line: "", space: last.before + last.colon.slice(1) ? " " : "" }

const add = (
  node: JsonContainer,
  key: string | undefined,
  value: Schema.Json,
  usual: JsonLayout
): JsonNode => {
  const last = node.items.at(-1)
  const layout = node.layout ?? (last === undefined ? usual : layoutBehind(last, usual))
  const item: JsonItem = {
    before: layout.line === "" ? (last === undefined ? "" : layout.space) : breakOf(layout, node.depth + 1),
    key: key === undefined ? "" : JSON.stringify(key),
    colon: key === undefined ? "" : `:${layout.space}`,
    value: make(value, node.depth + 1, layout),
    after: ""
  }
  if (last === undefined) node.tail = breakOf(layout, node.depth)
  node.items.push(item)
  if (key !== undefined) node.members.set(key, item)
  return item.value
}

const make = (value: Schema.Json, depth: number, layout: JsonLayout): JsonNode => {
  if (!isMap(value) && !isList(value)) return { type: "scalar", raw: JSON.stringify(value) }
  const type = isList(value) ? "list" : "map"
  const node: JsonContainer = { type, depth, items: [], members: new Map(), tail: "", layout }
  if (isList(value)) for (const item of value) add(node, undefined, item, layout)
  else for (const [key, child] of Object.entries(value)) add(node, key, child, layout)
  return node
}

/** The tree's operations; new parts are laid out like their neighbours, else by `layout`. */
export const jsonTree = (layout: JsonLayout): Tree<JsonNode> => {
  const find = (node: JsonNode, key: string | number): JsonItem | undefined => {
    if (node.type === "scalar") return undefined
    return typeof key === "string" ? node.members.get(key) : node.items[key]
  }
  const look = (node: JsonNode, key: string | number) => find(node, key)?.value

  return {
    kind: (node) => node.type,
    keys: (node) => (node.type === "map" ? [...node.members.keys()] : []),
    size: (node) => (node.type === "list" ? node.items.length : 0),
    look,
    enter: look,
    put: (node, key, value) => {
      const item = find(node, key)
      if (item === undefined) {
        return node.type === "scalar"
          ? node
          : add(node, typeof key === "string" ? key : undefined, value, layout)
      }
      if (!isDeepStrictEqual(JSON.parse(printJson(item.value)), value)) {
        item.value = make(value, node.type === "scalar" ? 0 : node.depth + 1, layoutBehind(item, layout))
      }
      return item.value
    }
  }
}
