/** Java properties files: what `java.util.Properties` reads, comments and layout kept. */
import { Result } from "effect"
import { leavesOf } from "./find.ts"
import type { Patcher } from "./PatchProblem.ts"
import { insertLines, joinLines, type Line, lineEndOf, splitLines } from "./text.ts"

/** A key and its value as they stand in lines `first` to `last`; `head` is all that comes before the value. */
interface Property {
  readonly key: string
  readonly value: string
  readonly head: string
  /** Key and value are apart by white space only. */
  readonly bare: boolean
  readonly first: number
  readonly last: number
}

const SPACE = " \t\f"

/** An odd number of backslashes at its end: the line goes on in the next one. */
const endsOpen = (text: string): boolean => {
  let slashes = 0
  for (let at = text.length - 1; at >= 0 && text[at] === "\\"; at--) slashes++
  return slashes % 2 === 1
}

const skipSpace = (text: string, from: number): number => {
  let at = from
  while (at < text.length && SPACE.includes(text.charAt(at))) at++
  return at
}

const escapes: ReadonlyMap<string, string> = new Map([
  ["t", "\t"],
  ["n", "\n"],
  ["r", "\r"],
  ["f", "\f"]
])

const unescape = (text: string): string =>
  text.replace(/\\(?:u([0-9a-fA-F]{4})|([\s\S]))/g, (_, code: string | undefined, char: string) =>
    code === undefined ? (escapes.get(char) ?? char) : String.fromCharCode(Number.parseInt(code, 16))
  )

/** As Java writes it: all but printable ASCII as `\uXXXX`, which loaders that expect Latin-1 read as well. */
const escape = (text: string): string =>
  text
    .replace(/\\/g, "\\\\")
    .replace(/\t/g, "\\t")
    .replace(/\n/g, "\\n")
    .replace(/\r/g, "\\r")
    .replace(/\f/g, "\\f")
    .replace(/[^ -~]/g, (char) => `\\u${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`)

const escapeKey = (key: string): string => escape(key).replace(/[ =:#!]/g, "\\$&")

/** Escapes what would be read as part of the separator: a leading space, after white space also `=` and `:`. */
const escapeValue = (value: string, bare: boolean): string =>
  escape(value).replace(bare ? /^[ =:]/ : /^ /, "\\$&")

const readProperty = (lines: ReadonlyArray<Line>, first: number): Property => {
  const pieces: Array<string> = []
  const cuts: Array<{ readonly at: number; readonly text: string }> = []
  let length = 0
  let last = first
  let piece = lines[first]?.text ?? ""
  for (;;) {
    const open = endsOpen(piece)
    pieces.push(open ? piece.slice(0, -1) : piece)
    length += open ? piece.length - 1 : piece.length
    const next = lines[last + 1]
    if (!open || next === undefined) break
    const indent = skipSpace(next.text, 0)
    cuts.push({ at: length, text: `\\${lines[last]?.end ?? ""}${next.text.slice(0, indent)}` })
    piece = next.text.slice(indent)
    last++
  }
  const text = pieces.join("")
  const start = skipSpace(text, 0)
  let keyEnd = start
  while (keyEnd < text.length && !`=:${SPACE}`.includes(text.charAt(keyEnd))) {
    keyEnd += text[keyEnd] === "\\" ? 2 : 1
  }
  keyEnd = Math.min(keyEnd, text.length)
  const sign = skipSpace(text, keyEnd)
  const signed = text[sign] === "=" || text[sign] === ":"
  const valueStart = signed ? skipSpace(text, sign + 1) : sign
  let head = ""
  let from = 0
  for (const cut of cuts) {
    if (cut.at >= valueStart) break
    head += text.slice(from, cut.at) + cut.text
    from = cut.at
  }
  head += text.slice(from, valueStart)
  return {
    key: unescape(text.slice(start, keyEnd)),
    value: unescape(text.slice(valueStart)),
    head: keyEnd === valueStart ? `${head}=` : head,
    bare: !signed && keyEnd !== valueStart,
    first,
    last
  }
}

const readProperties = (lines: ReadonlyArray<Line>): Array<Property> => {
  const properties: Array<Property> = []
  for (let at = 0; at < lines.length; at++) {
    const text = lines[at]?.text ?? ""
    const start = skipSpace(text, 0)
    if (start === text.length || text[start] === "#" || text[start] === "!") continue
    const property = readProperty(lines, at)
    properties.push(property)
    at = property.last
  }
  return properties
}

/** Whether a key fits a pattern: `*` alone fits every key, among dots it fits one segment. */
const fits = (pattern: string, key: string): boolean => {
  if (pattern === "*") return true
  const segments = key.split(".")
  const wanted = pattern.split(".")
  return wanted.length === segments.length && wanted.every((part, n) => part === "*" || part === segments[n])
}

/** What is to become of the file: values of keys that it has, and keys to add at its end. */
const plan = (properties: ReadonlyArray<Property>, leaves: ReadonlyArray<{ key: string; value: string }>) => {
  const known = new Set(properties.map((property) => property.key))
  const values = new Map<string, string>()
  const added = new Map<string, string>()
  for (const { key, value } of leaves) {
    if (known.has(key)) values.set(key, value)
    else if (key.split(".").includes("*")) {
      for (const name of known) if (fits(key, name)) values.set(name, value)
      for (const name of added.keys()) if (fits(key, name)) added.set(name, value)
    } else added.set(key, value)
  }
  return { values, added }
}

/**
 * Keys are flat: nested keys are joined with dots. Where a key occurs more than once, all its occurrences are set.
 * Keys that are missing are added at the end.
 */
export const patchProperties: Patcher = (text, find) => {
  const leaves = leavesOf(find)
  if (Result.isFailure(leaves)) return Result.fail(leaves.failure)
  const lines = splitLines(text ?? "")
  const properties = readProperties(lines)
  const { values, added } = plan(
    properties,
    leaves.success.map(({ path, value }) => ({ key: path.join("."), value }))
  )
  const patched: Array<Line> = []
  let copied = 0
  for (const { key, value, head, bare, first, last } of properties) {
    const wanted = values.get(key)
    if (wanted === undefined || wanted === value) continue
    for (; copied < first; copied++) patched.push(lines[copied] ?? { text: "", end: "" })
    patched.push({ text: head + escapeValue(wanted, bare), end: lines[last]?.end ?? "" })
    copied = last + 1
  }
  for (; copied < lines.length; copied++) patched.push(lines[copied] ?? { text: "", end: "" })
  const fresh = [...added].map(([key, value]) => `${escapeKey(key)}=${escapeValue(value, false)}`)
  if (fresh.length > 0) {
    // a last line that goes on nowhere would swallow the next one
    const final = properties.at(-1)
    const open = final?.last === lines.length - 1 && endsOpen(patched.at(-1)?.text ?? "")
    insertLines(patched, patched.length, open ? ["", ...fresh] : fresh, lineEndOf(text ?? ""))
  }
  return Result.succeed(joinLines(patched))
}
