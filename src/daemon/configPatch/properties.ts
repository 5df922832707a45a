/** Java properties files, read as `java.util.Properties` reads them; comments and layout stay. */
import { Result, type Schema } from "effect"
import { applyEdits, type Edit, flatText, leavesOf, lineEndOf, type Patcher, type Unmatched } from "./find.ts"

interface Property {
  readonly key: string
  readonly value: string
  readonly start: number
  readonly end: number
  readonly separator: string
}

const blank = /[ \t\f]*(?:[#!][^\r\n]*)?(?:\r\n|\n|\r|$)/y
/** A property; a backslash at the end of a line continues it on the next. */
const property = new RegExp(
  [
    /[ \t\f]*/,
    /(?:\\(?:\r\n|[\s\S])[ \t\f]*|[^\\=: \t\f\r\n]+)*/,
    /(?:[ \t\f]+|\\(?:\r\n|[\r\n]))*[=:]?(?:[ \t\f]+|\\(?:\r\n|[\r\n]))*/,
    /(?:\\(?:\r\n|[\s\S])|[^\\\r\n]+)*\\?/
  ]
    .map(({ source }) => `(${source})`)
    .join(""),
  "y"
)

/** The characters with an escape of their own, and its letter. */
const letters = new Map([..."\t\n\r\f"].map((char, at) => [char, "tnrf".charAt(at)]))
const escapes = new Map([...letters].map(([char, letter]) => [letter, char]))

const unescape = (text: string): string =>
  text.replace(
    /\\(?:(?:\r\n|[\r\n])[ \t\f]*|u([0-9a-fA-F]{4})|([\s\S])|$)/g,
    (_, code: string | undefined, char = "") =>
      code === undefined ? (escapes.get(char) ?? char) : String.fromCharCode(Number.parseInt(code, 16))
  )

/** Escapes as Java does: all but printable ASCII as `\uXXXX`, which loaders for Latin-1 read as well. */
const escape = (text: string): string =>
  text.replace(/\\|[^ -~]/g, (char) => {
    if (char === "\\") return "\\\\"
    return `\\${letters.get(char) ?? `u${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`}`
  })

const escapeKey = (key: string): string => escape(key).replace(/[ =:#!]/g, "\\$&")

/** Escapes a value so that its start is not part of the separator: a space, after white space also `=` and `:`. */
const escapeValue = (value: string, bare: boolean): string =>
  escape(value).replace(bare ? /^[ =:]/ : /^ /, "\\$&")

const propertiesOf = (text: string): ReadonlyArray<Property> => {
  const found: Array<Property> = []
  for (let at = 0; at < text.length; ) {
    blank.lastIndex = at
    if (blank.test(text)) {
      at = blank.lastIndex
      continue
    }
    property.lastIndex = at
    const [, indent = "", key = "", separator = "", value = ""] = property.exec(text) ?? []
    const start = at + indent.length + key.length + separator.length
    at = start + value.length
    found.push({ key: unescape(key), value: unescape(value), start, end: at, separator })
  }
  return found
}

/** Returns whether a key fits a pattern: `*` alone fits every key, among dots it fits one segment. */
const fits = (pattern: string, key: string): boolean => {
  if (pattern === "*") return true
  const segments = key.split(".")
  const wanted = pattern.split(".")
  return wanted.length === segments.length && wanted.every((part, n) => part === "*" || part === segments[n])
}

const ending = (text: string, added: ReadonlyMap<string, string>): string => {
  const line = lineEndOf(text)
  const ended = text === "" || /[\r\n]$/.test(text)
  // a last line that continues on no other would swallow the next one
  const open = /(?<!\\)(?:\\\\)*\\(?:\r\n|[\r\n])?$/.test(text)
  const fresh = [...added].map(([key, value]) => `${escapeKey(key)}=${escapeValue(value, false)}`)
  return (ended ? "" : line) + (open ? line : "") + fresh.join(line) + (ended ? line : "")
}

/** Patches a properties file. Nested keys are joined with dots, all occurrences are set, new keys go last. */
export const patchProperties: Patcher = (given, find) =>
  Result.map(leavesOf(find), (leaves) => {
    const text = given ?? ""
    const properties = propertiesOf(text)
    const known = new Set(properties.map(({ key }) => key))
    const values = new Map<string, Schema.Json>()
    const added = new Map<string, string>()
    const unmatched: Array<Unmatched> = []
    for (const { path, value } of leaves) {
      const key = path.join(".")
      if (known.has(key)) values.set(key, value)
      else if (key.split(".").includes("*")) {
        const present = [...known].filter((name) => fits(key, name))
        const fresh = [...added.keys()].filter((name) => fits(key, name))
        for (const name of present) values.set(name, value)
        for (const name of fresh) added.set(name, flatText(value))
        if (present.length + fresh.length === 0) unmatched.push({ key, reason: "no key of the file fits" })
      } else added.set(key, flatText(value))
    }
    const edits = properties.flatMap(({ key, value, start, end, separator }): ReadonlyArray<Edit> => {
      const given = values.get(key)
      const wanted = given === undefined ? value : flatText(given, value)
      if (wanted === value) return []
      const sign = separator === "" ? "=" : ""
      return [{ start, end, text: sign + escapeValue(wanted, sign === "" && !/[=:]/.test(separator)) }]
    })
    if (added.size > 0) edits.push({ start: text.length, end: text.length, text: ending(text, added) })
    return { text: applyEdits(text, edits), unmatched }
  })
