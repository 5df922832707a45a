import { Result, type Schema } from "effect"
import {
  applyFind,
  change,
  type Data,
  type DataMap,
  type Format,
  isContainer,
  isList,
  isMap,
  loses,
  same,
  Written
} from "./data.ts"
import { appended, applyEdits, type Edit, lineEndOf, type Patcher, problem, shown } from "./find.ts"
import { isTable, isTables, type Part, partOf, pathOf, placesOf, readToml, type Table } from "./tomlTree.ts"

const quoted = (text: string): string => JSON.stringify(text).replaceAll("\x7f", "\\u007f")

const keyText = (keys: ReadonlyArray<string>): string =>
  keys.map((key) => (/^[\w-]+$/.test(key) ? key : quoted(key))).join(".")

const pairText = (keys: ReadonlyArray<string>, value: Data): string =>
  `${keyText(keys)} = ${valueText(value)}`

const date = /^(?=.)(?:\d{4}-\d\d-\d\d)?(?:(?:^|[Tt ])\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:\d\d)?)?$/

/** Prints a value on one line, in the form of `old`: a date, a text in single quotes. */
const valueText = (value: Data, old?: Part): string => {
  if (value instanceof Written) return value.text
  if (isMap(value)) {
    const pairs = [...value].map(([key, inner]) => pairText([key], inner))
    return pairs.length === 0 ? "{}" : `{ ${pairs.join(", ")} }`
  }
  if (isList(value)) return `[${value.map((item) => valueText(item)).join(", ")}]`
  const form =
    old === undefined || Array.isArray(old) || isTable(old) || old.type === "TOMLArray" ? undefined : old
  if (typeof value === "string") {
    if (form !== undefined && "datetime" in form && date.test(value)) return value
    const literal = form?.kind === "string" && form.style === "literal" && !/['\p{Cc}]/u.test(value)
    return literal ? `'${value}'` : quoted(value)
  }
  const text = String(value)
  // integers have 64 bits
  return typeof value === "number" && /^-?\d+$/.test(text) && Math.abs(value) >= 2 ** 63 ? `${text}.0` : text
}

const isSection = (value: Data): boolean =>
  isMap(value) || (isList(value) && value.length > 0 && value.every(isMap))

/** Returns the lines of a new table, or of the items of a new array of tables, each after an empty line. */
const sectionLines = (path: ReadonlyArray<string>, value: Data): ReadonlyArray<string> => {
  if (isMap(value)) return tableLines(path, value, "[", "]")
  return isList(value) ? value.filter(isMap).flatMap((item) => tableLines(path, item, "[[", "]]")) : []
}

const tableLines = (path: ReadonlyArray<string>, map: DataMap, open: string, close: string) => {
  const pairs = [...map]
    .filter(([, value]) => !isSection(value))
    .map(([key, value]) => pairText([key], value))
  const inner = [...map].flatMap(([key, value]) =>
    isSection(value) ? sectionLines([...path, key], value) : []
  )
  const headless = open === "[" && pairs.length === 0 && inner.length > 0
  return headless ? inner : ["", open + keyText(path) + close, ...pairs, ...inner]
}

/** The text behind an item to the end of its line: a comma perhaps, and a comment. */
const restOfLine = /[ \t]*(,)?[ \t]*(?:#[^\r\n]*)?(?=\r?\n)/y

type Members = ReadonlyArray<readonly [string | number, Data]>

const editsOf = (text: string, root: Table, from: Data, to: Data): ReadonlyArray<Edit> => {
  const edits: Array<Edit> = []
  const line = lineEndOf(text)

  const lineStart = (at: number) => text.lastIndexOf("\n", at - 1) + 1
  const lineEnd = (at: number) => text.indexOf("\n", at) + 1 || text.length

  /** Inserts lines at the start of a line, or at the end of the text. */
  const insert = (at: number, lines: ReadonlyArray<string>, indent = "") => {
    const first = lines[0] === "" && at === 0 && edits.length === 0 ? 1 : 0
    const joined = lines
      .slice(first)
      .map((each) => (each === "" ? each : indent + each))
      .join(line)
    const added = at === 0 || text[at - 1] === "\n" ? joined + line : line + joined
    edits.push({ start: at, end: at, text: added })
  }

  /** Returns the end of the last line of a table, with its subtables if `deep`, if it has a line. */
  const endOf = (table: Table, deep: boolean): number | undefined => {
    if (deep && table === root) return text.length
    const ends = placesOf(table, deep).map(([, end]) => end)
    return ends.length === 0 ? undefined : lineEnd(ends.reduce((a, b) => Math.max(a, b)))
  }

  /** Returns the place of the first keys of a file: before its first header and the comment above it. */
  const topOf = (): number | undefined => {
    const starts = placesOf(root, true).map(([start]) => start)
    if (starts.length === 0) return undefined
    let at = lineStart(starts.reduce((a, b) => Math.min(a, b)))
    while (at > 0 && /^[ \t]*#/.test(text.slice(lineStart(at - 1), at))) at = lineStart(at - 1)
    return at
  }

  const addTo = (table: Table, members: Members) => {
    const named = members.map(([key, value]) => [String(key), value] as const)
    const { kind } = table
    const flat = kind === "header" ? named.filter(([, value]) => !isSection(value)) : named
    const pairs = flat.map(([key, value]) => pairText([...pathOf(table, false), key], value))
    if (typeof kind === "object") {
      const last = table.places.at(-1)?.[1]
      const at = last ?? kind.range[1] - 1
      const added = pairs.join(", ")
      edits.push({ start: at, end: at, text: last === undefined ? ` ${added} ` : `, ${added}` })
      return
    }
    const own = endOf(table, false)
    const end = endOf(table, true) ?? text.length
    if (own === undefined && table !== root) {
      insert(end, sectionLines(pathOf(table, true), new Map(named)))
      return
    }
    const top = own === undefined ? topOf() : undefined
    if (pairs.length > 0 && top !== undefined) insert(top, [...pairs, ""])
    else if (pairs.length > 0) {
      const at = own ?? end
      insert(at, pairs, /^[ \t]*/.exec(text.slice(lineStart(at - 1), at))?.[0])
    }
    for (const [key, value] of named) {
      if (kind === "header" && isSection(value))
        insert(end, sectionLines([...pathOf(table, true), key], value))
    }
  }

  const format: Format<Part> = {
    parts: (part) => {
      if (isTable(part)) return part.children
      if (isTables(part)) return part.entries()
      return part.type === "TOMLArray" ? part.elements.map(partOf).entries() : []
    },
    look: (part, old, wanted) => {
      if (old === wanted) return "keep"
      if (isTables(part)) {
        const tables = isSection(wanted) && isList(wanted) && isContainer(old) && isList(old)
        return tables && !old.some((item, n) => loses(item, wanted[n] ?? null)) ? "compare" : "replace"
      }
      // keys with dots in braces have no place of their own
      const inline = isTable(part) && typeof part.kind === "object" ? [...part.children.values()] : []
      return inline.some((child) => isTable(child) && child.kind === "dotted") ? "replace" : "compare"
    },
    replace: (part, value) => {
      const node = isTables(part) ? undefined : isTable(part) ? part.kind : part
      if (typeof node === "object") {
        const items = node.type === "TOMLArray" && isList(value) && value.length > 0 ? node.elements : []
        const [first, last] = [items.at(0), items.at(-1)]
        if (first === undefined || last === undefined || !isList(value)) {
          edits.push({ start: node.range[0], end: node.range[1], text: valueText(value, part) })
          return
        }
        const between = lineAt(first.range[0]) ?? " "
        const text = value.map((item) => valueText(item)).join(`,${between}`)
        edits.push({ start: first.range[0], end: last.range[1], text })
        return
      }
      const tables = isTables(part) ? part : isTable(part) ? [part] : []
      const { name = "", parent = root } = tables[0] ?? {}
      for (const [start, end] of tables.flatMap((table) => placesOf(table, true)))
        edits.push({ start: lineStart(start), end: lineEnd(end), text: "" })
      addTo(parent, [[name, value]])
    },
    add: (part, members) => {
      if (isTable(part)) return addTo(part, members)
      if (isTables(part)) {
        const last = part.at(-1) ?? root
        const items = members.map(([, value]) => value)
        return insert(endOf(last, true) ?? text.length, sectionLines(pathOf(last, true), items))
      }
      if (part.type !== "TOMLArray") return
      const last = part.elements.at(-1)
      const between = (last === undefined ? undefined : lineAt(last.range[0])) ?? " "
      const items = members.map(([, value]) => valueText(value)).join(`,${between}`)
      const close = part.range[1] - 1
      if (last === undefined) edits.push({ start: close, end: close, text: items })
      else
        edits.push(
          ...appended(text, last.range[1], between + items, between === " " ? undefined : restOfLine)
        )
    }
  }

  /** Returns the line end and the indentation of what begins its line. */
  const lineAt = (at: number): string | undefined => {
    const before = text.slice(lineStart(at), at)
    return before.trim() === "" ? line + before : undefined
  }

  change(format, root, from, to)
  return edits
}

const holdsNull = (value: Schema.Json): boolean =>
  value === null || (typeof value === "object" && Object.values(value).some(holdsNull))

/** Patches a TOML file with keys as in `applyFind`. Comments and forms stay; a text for a date may be a date. */
export const patchToml: Patcher = (given, find) =>
  Result.gen(function* () {
    const empty = Object.entries(find).find(([, value]) => holdsNull(value))
    if (empty !== undefined)
      return yield* problem(`the key ${shown(empty[0])} has null, which TOML cannot hold`)
    const text = given ?? ""
    const { data, root } = yield* readToml(text)
    const { data: wanted, unmatched } = yield* applyFind(isContainer(data) ? data : undefined, find)
    const made = applyEdits(text, editsOf(text, root, data, wanted))
    if (made === text) return { text, unmatched }
    const again = made === undefined ? undefined : Result.getOrUndefined(readToml(made))
    return again !== undefined && same(again.data, wanted)
      ? { text: made, unmatched }
      : yield* problem("the result would not be valid TOML")
  })
