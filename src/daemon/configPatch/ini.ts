/** INI files: sections, `key = value` or `key: value`, comments with `;` and `#`, values in quotes. */
import { Result, type Schema } from "effect"
import {
  flatText,
  insertLines,
  joinLines,
  type Leaf,
  type Line,
  leavesOf,
  lineEndOf,
  type Patcher,
  problem,
  shown,
  splitLines,
  type Unmatched
} from "./find.ts"

/** A key in the file. The line is `head`, the value, `tail`; `quote` surrounds the value. */
interface Entry {
  readonly line: number
  readonly head: string
  readonly value: string
  readonly quote: string
  readonly tail: string
  readonly separator: string
}

interface Section {
  readonly name: string
  readonly keys: Map<string, Array<Entry>>
  /** The line of a new key: after the section's last key, or after its header. */
  end: number
}

const header = /^\s*\[([^\]]*)\]\s*(?:[;#].*)?$/s

/** Divides what follows the separator into value and comment; a comment has white space before its `;` or `#`. */
const splitValue = (rest: string): Pick<Entry, "value" | "quote" | "tail"> => {
  const quote = rest.charAt(0)
  if (quote === '"' || quote === "'") {
    const close = rest.indexOf(quote, 1)
    if (close > 0 && /^\s*(?:$|[;#])/.test(rest.slice(close + 1))) {
      return { value: rest.slice(1, close), quote, tail: rest.slice(close + 1) }
    }
  }
  const comment = quote === ";" ? 0 : rest.search(/\s[;#]/)
  const value = (comment < 0 ? rest : rest.slice(0, comment)).trimEnd()
  return { value, quote: "", tail: rest.slice(value.length) }
}

const readSections = (lines: ReadonlyArray<Line>): Array<Section> => {
  let section: Section = { name: "", keys: new Map(), end: 0 }
  const sections = [section]
  lines.forEach(({ text }, line) => {
    const name = header.exec(text)?.[1]
    if (name !== undefined) {
      section = { name: name.trim(), keys: new Map(), end: line + 1 }
      sections.push(section)
      return
    }
    const start = text.search(/\S/)
    if (start < 0 || text[start] === ";" || text[start] === "#") return
    const sign = text.search(/[=:]/)
    const key = (sign < 0 ? text : text.slice(0, sign)).trim()
    const valueStart = sign < 0 ? text.length : sign + 1 + text.slice(sign + 1).search(/\S|$/)
    const head = sign < 0 ? `${text.trimEnd()}=` : text.slice(0, valueStart)
    const separator = sign < 0 ? "=" : text.slice(text.slice(0, sign).trimEnd().length, valueStart)
    const entry = { line, head, separator, ...splitValue(text.slice(valueStart)) }
    const same = section.keys.get(key)
    if (same === undefined) section.keys.set(key, [entry])
    else same.push(entry)
    section.end = line + 1
  })
  return sections
}

interface Target {
  readonly section: string
  readonly key: string
}

/** Returns all readings of a key: a dotted one whole first, then by the longest section; brackets are exact. */
const readings = (path: Leaf["path"]): ReadonlyArray<Target> => {
  const last = path.at(-1) ?? ""
  const named = path.length === 1 ? /^\[([^\]]+)\]\.(.+)$/s.exec(last) : null
  if (named !== null) return [{ section: named[1] ?? "", key: named[2] ?? "" }]
  if (path.length > 1) return [{ section: path.slice(0, -1).join("."), key: last }]
  const parts = last.split(".")
  const cuts = parts.slice(1).map((_, n) => parts.length - 1 - n)
  return [
    { section: "", key: last },
    ...cuts.map((cut) => ({ section: parts.slice(0, cut).join("."), key: parts.slice(cut).join(".") }))
  ]
}

type Index = ReadonlyMap<string, ReadonlyArray<Section>>

const isWild = (key: string) => key.split(".").includes("*")

/** Returns the targets of `*`: as a section every section with a name, as a key every key of the section. */
const wildTargets = (all: ReadonlyArray<Target>, index: Index): ReadonlyArray<Target> =>
  all.flatMap(({ section, key }) => {
    if ((section !== "*" && isWild(section)) || (key !== "*" && isWild(key))) return []
    const names = section === "*" ? [...index.keys()].filter((name) => name !== "") : [section]
    return names.flatMap((name) => {
      const keys = key === "*" ? (index.get(name) ?? []).flatMap((found) => [...found.keys.keys()]) : [key]
      return keys.map((each) => ({ section: name, key: each }))
    })
  })

const targetsOf = (path: Leaf["path"], index: Index): ReadonlyArray<Target> => {
  const all = readings(path)
  const found = all.find(({ section, key }) => index.get(section)?.some(({ keys }) => keys.has(key)))
  if (found !== undefined) return [found]
  if (path.some(isWild)) return wildTargets(all, index)
  const open = all.find(({ section }) => section !== "" && index.has(section))
  // the last reading of a dotted key has the shortest section
  const target = open ?? all.at(-1)
  return target === undefined ? [] : [target]
}

/** Returns the text of the value before `tail`, in quotes if it would otherwise have another meaning. */
const write = (value: string, quote: string, tail: string): string | undefined => {
  if (/[\r\n]/.test(value)) return undefined
  const own = splitValue(value)
  const meant = own.quote !== "" && own.tail === "" ? own.value : value
  return [value, quote + value + quote, `"${value}"`, `'${value}'`].find((candidate, n) => {
    if (n === 0 && quote !== "" && meant === value) return false
    const read = splitValue((candidate + tail).trimStart())
    return read.value === meant && read.tail.trim() === tail.trim()
  })
}

const refuse = (key: string, what: string) =>
  problem(`the ${what} of ${shown(key)} cannot be written in an INI file`)

const isKey = (key: string) => key === key.trim() && key !== "" && !/[=:\r\n]|^[;#[]/.test(key)
const isSection = (name: string) => name === name.trim() && name !== "" && !/[\]\r\n]/.test(name)

const sets = (entry: Entry, value: string) =>
  entry.value === value || entry.quote + entry.value + entry.quote === value

const add = (
  lines: Array<Line>,
  sections: ReadonlyArray<Section>,
  index: Index,
  added: ReadonlyMap<string, ReadonlyMap<string, string>>,
  end: string
) => {
  const separatorOf = (section: Section | undefined) =>
    [...(section?.keys.values() ?? [])].at(-1)?.at(-1)?.separator
  const usual = sections.map(separatorOf).find((separator) => separator !== undefined) ?? "="
  const places = [...added].map(([name, keys]) => {
    const section = index.get(name)?.at(-1)
    const separator = separatorOf(section) ?? usual
    return { name, section, fresh: [...keys].map(([key, value]) => key + separator + value) }
  })
  for (const { name, section, fresh } of places) {
    if (section !== undefined) continue
    insertLines(lines, lines.length, [...(lines.length > 0 ? [""] : []), `[${name}]`, ...fresh], end)
  }
  const known = places.flatMap(({ section, fresh }) =>
    section === undefined ? [] : [{ at: section.end, fresh }]
  )
  // from the bottom up: the line numbers above stay valid
  for (const { at, fresh } of known.toSorted((a, b) => b.at - a.at)) insertLines(lines, at, fresh, end)
}

/** Patches an INI file: `section.key` or `[section].key`, existing dotted names first, all occurrences. */
export const patchIni: Patcher = (text, find) =>
  Result.gen(function* () {
    const leaves = yield* leavesOf(find)
    const lines = splitLines(text ?? "")
    const sections = readSections(lines)
    const index: Index = Map.groupBy(sections, ({ name }) => name)
    const added = new Map<string, Map<string, string>>()
    const changed = new Map<Entry, Schema.Json>()
    const unmatched: Array<Unmatched> = []
    for (const { path, value } of leaves) {
      const targets = targetsOf(path, index)
      if (targets.length === 0) {
        unmatched.push({ key: path.join("."), reason: "`*` stands for no section or key of the file" })
      }
      for (const { section, key } of targets) {
        const entries = (index.get(section) ?? []).flatMap(({ keys }) => keys.get(key) ?? [])
        for (const entry of entries) changed.set(entry, value)
        if (entries.length > 0) continue
        if (!isKey(key) || (section !== "" && !isSection(section)))
          return yield* refuse(path.join("."), "name")
        const written = write(flatText(value), "", "")
        if (written === undefined) return yield* refuse(path.join("."), "value")
        added.set(section, (added.get(section) ?? new Map<string, string>()).set(key, written))
      }
    }
    for (const [entry, wanted] of changed) {
      const value = flatText(wanted, entry.value)
      if (sets(entry, value)) continue
      const written = write(value, entry.quote, entry.tail)
      if (written === undefined) return yield* refuse(entry.head.trim(), "value")
      lines[entry.line] = { text: entry.head + written + entry.tail, end: lines[entry.line]?.end ?? "" }
    }
    add(lines, sections, index, added, lineEndOf(text ?? ""))
    return { text: joinLines(lines), unmatched }
  })
