/** What the parsers share: rules for keys and values of `find`, and lines, edits and encodings of texts. */
import { Data, Result, type Schema } from "effect"
import type { ConfigParser } from "../../contract/domain/ConfigPatch.ts"

/** A patch that cannot be applied: the file is not in its format, or the format cannot hold the value. */
export class PatchProblem extends Data.TaggedError("PatchProblem")<{ readonly reason: string }> {}

/** The values to set, as in `ConfigPatch.find`. A later key wins over an earlier one. */
export type Find = Readonly<Record<string, Schema.Json>>

export interface Unmatched {
  readonly key: string
  readonly reason: string
}

/** The text of a patched file, and the keys that have no effect on it; `undefined` is a file that does not exist. */
export interface PatchedText {
  readonly text: string | undefined
  readonly unmatched: ReadonlyArray<Unmatched>
}

/** Sets values in the text of a file, or makes it. A text that already has all values is returned unchanged. */
export type Patcher = (text: string | undefined, find: Find) => Result.Result<PatchedText, PatchProblem>

const MAX_DEPTH = 64
const MAX_KEY_LENGTH = 1024

export const isJsonList = (value: Schema.Json): value is ReadonlyArray<Schema.Json> => Array.isArray(value)

export const isJsonMap = (value: Schema.Json): value is { readonly [key: string]: Schema.Json } =>
  typeof value === "object" && value !== null && !isJsonList(value) && standInOf(value) === undefined

/** A value that was only one placeholder, and takes the type in the file. Blueprints cannot write its empty key. */
export const standIn = (value: string | number): Schema.Json => ({ "": { "": value } })

export const standInOf = (value: Schema.Json): string | number | undefined => {
  for (let level = 0; level < 2; level++) {
    if (typeof value !== "object" || value === null || isJsonList(value) || !Object.hasOwn(value, ""))
      return undefined
    value = Reflect.get(value, "")
  }
  return typeof value === "string" || typeof value === "number" ? value : undefined
}

export const firstProblem = <A>(
  items: Iterable<A>,
  step: (item: A) => PatchProblem | undefined
): PatchProblem | undefined => {
  for (const item of items) {
    const failed = step(item)
    if (failed !== undefined) return failed
  }
  return undefined
}

export const problem = (reason: string) => Result.fail(new PatchProblem({ reason }))

/** Refuses empty or too long keys and too deep values, without recursion. `expanded` allows stand-ins. */
export const checkFind = (find: Find, expanded = false): Result.Result<void, PatchProblem> => {
  const open: Array<readonly [Schema.Json, number]> = [[find, 0]]
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const [value, depth] = next
    if (depth > MAX_DEPTH) return problem(`the values are nested deeper than ${MAX_DEPTH} levels`)
    if (isJsonList(value)) for (const item of value) open.push([item, depth + 1])
    else if (typeof value === "object" && value !== null) {
      if (expanded && standInOf(value) !== undefined) continue
      for (const [key, child] of Object.entries(value)) {
        if (key === "") return problem("a key is empty")
        if (key.length > MAX_KEY_LENGTH || key.split(".").length > MAX_DEPTH) {
          return problem(`the key ${shown(key)} is too long`)
        }
        open.push([child, depth + 1])
      }
    }
  }
  return Result.void
}

export const isIndex = (part: string): boolean => /^(?:0|[1-9]\d{0,8})$/.test(part)

export const hasWildcard = (find: Find): boolean =>
  Object.entries(find).some(
    ([key, value]) => key.split(".").includes("*") || (isJsonMap(value) && hasWildcard(value))
  )

/** A key as messages show it: quoted, at most 80 characters. */
export const shown = (key: string): string => JSON.stringify(key.length > 80 ? `${key.slice(0, 80)}...` : key)

/** Returns the parts of a key before and after the dot at `dot`; a negative `dot` is no dot. */
export const cut = (key: string, dot: number): readonly [string, string | undefined] =>
  dot < 0 ? [key, undefined] : [key.slice(0, dot), key.slice(dot + 1)]

const truths = ["true", "yes", "on"]
const falsehoods = ["false", "no", "off"]

/** Returns a boolean in the words and the case of `old`, such as `True` or `no`, if `old` is a boolean. */
export const spelledAs = (old: string, wanted: boolean): string | undefined => {
  const lower = old.toLowerCase()
  const word = (wanted ? truths : falsehoods)[Math.max(truths.indexOf(lower), falsehoods.indexOf(lower))]
  if (word === undefined || old === lower) return word
  return old === old.toUpperCase() ? word.toUpperCase() : word.slice(0, 1).toUpperCase() + word.slice(1)
}

/** Returns the boolean that the value of a placeholder is, in any case, if it is one. */
export const truthOf = (text: string): boolean | undefined =>
  /^true$/i.test(text) || (/^false$/i.test(text) ? false : undefined)

/** Returns the text of a value for a format without types. Null is empty, and a boolean is spelled as `old`. */
export const flatText = (value: Schema.Json, old = ""): string => {
  const stands = standInOf(value)
  const text = value === null ? "" : String(stands ?? value)
  const wanted = typeof value === "boolean" || stands !== undefined ? truthOf(text) : undefined
  return wanted === undefined ? text : (spelledAs(old.trim(), wanted) ?? text)
}

export interface Leaf {
  readonly path: readonly [string, ...Array<string>]
  readonly value: Schema.Json
}

/** Returns the values for a format without types, see {@link flatText}; a list is refused. */
export const leavesOf = (find: Find): Result.Result<ReadonlyArray<Leaf>, PatchProblem> => {
  const leaves: Array<Leaf> = []
  const walk = (value: Schema.Json, path: Leaf["path"]): PatchProblem | undefined => {
    if (isJsonList(value)) {
      return new PatchProblem({
        reason: `the key ${shown(path.join("."))} has a list, which this format cannot hold`
      })
    }
    if (isJsonMap(value))
      return firstProblem(Object.entries(value), ([key, child]) => walk(child, [...path, key]))
    leaves.push({ path, value })
    return undefined
  }
  const failed = firstProblem(Object.entries(find), ([key, value]) => walk(value, [key]))
  return failed === undefined ? Result.succeed(leaves) : Result.fail(failed)
}

/** One line and what ends it: `\n`, `\r\n`, `\r`, or nothing at the end of the file. */
export interface Line {
  readonly text: string
  readonly end: string
}

/** Splits a text into lines without loss; a final line end adds no empty line. */
export const splitLines = (text: string): Array<Line> => {
  const lines: Array<Line> = []
  const ends = /\r\n|\n|\r/g
  let start = 0
  for (let match = ends.exec(text); match !== null; match = ends.exec(text)) {
    lines.push({ text: text.slice(start, match.index), end: match[0] })
    start = ends.lastIndex
  }
  if (start < text.length) lines.push({ text: text.slice(start), end: "" })
  return lines
}

export const joinLines = (lines: ReadonlyArray<Line>): string => {
  let text = ""
  for (const line of lines) text += line.text + line.end
  return text
}

/** Returns the first line end of the text; `\n` if it has none. */
export const lineEndOf = (text: string): string => /\r\n|\n|\r/.exec(text)?.[0] ?? "\n"

export const placeIn = (text: string, offset: number): string => {
  const lines = text.slice(0, offset).split(/\r\n|\n|\r/)
  return `line ${lines.length}, column ${(lines.at(-1) ?? "").length + 1}`
}

/** Inserts lines before `lines[index]`. A last line without an end gets one, and the new last line has none. */
export const insertLines = (
  lines: Array<Line>,
  index: number,
  added: ReadonlyArray<string>,
  end: string
): void => {
  const fresh = added.map((text): Line => ({ text, end }))
  const previous = lines[index - 1]
  if (previous !== undefined && previous.end === "") {
    lines[index - 1] = { text: previous.text, end }
    fresh[fresh.length - 1] = { text: added.at(-1) ?? "", end: "" }
  }
  lines.splice(index, 0, ...fresh)
}

export interface Edit {
  readonly start: number
  readonly end: number
  readonly text: string
}

/** Adds items behind the one that ends at `after`. `rest` matches a comma (its group) and a comment. */
export const appended = (
  text: string,
  after: number,
  items: string,
  rest: RegExp | undefined
): ReadonlyArray<Edit> => {
  if (rest !== undefined) rest.lastIndex = after
  const behind = rest?.exec(text)
  const at = after + (behind?.[0].length ?? 0)
  return behind?.[1] === undefined
    ? [
        { start: after, end: after, text: "," },
        { start: at, end: at, text: items }
      ]
    : [{ start: at, end: at, text: `${items},` }]
}

/** Applies edits unless two overlap; those at one place keep their order, and insertions come first. */
export const applyEdits = (text: string, edits: ReadonlyArray<Edit>): string | undefined => {
  const parts: Array<string> = []
  let at = 0
  for (const edit of edits.toSorted((a, b) => a.start - b.start || a.end - b.end)) {
    if (edit.start < at) return undefined
    parts.push(text.slice(at, edit.start), edit.text)
    at = edit.end
  }
  return parts.join("") + text.slice(at)
}

export type Encoding = "utf8" | "latin1"

export interface Decoded {
  readonly text: string
  readonly encoding: Encoding
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

/** Line formats are often in Latin-1, which keeps any bytes when it is read and written. */
const anyBytes: ReadonlyArray<ConfigParser> = ["properties", "ini", "file"]

/** Decodes a config file as UTF-8, or as Latin-1 unless the format prescribes an encoding. */
export const decodeText = (bytes: Uint8Array, parser: ConfigParser): Result.Result<Decoded, PatchProblem> => {
  const decoded = Result.try(() => utf8.decode(bytes))
  if (Result.isSuccess(decoded)) return Result.succeed({ text: decoded.success, encoding: "utf8" })
  const [first, second] = bytes
  if ((first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff)) {
    return problem("it is UTF-16, which is not supported")
  }
  if (!anyBytes.includes(parser)) return problem("it is not UTF-8")
  return Result.succeed({ text: Buffer.from(bytes).toString("latin1"), encoding: "latin1" })
}

export const encodeText = (text: string, encoding: Encoding): Result.Result<Buffer, PatchProblem> => {
  if (!text.isWellFormed()) return problem("a value is not valid Unicode")
  if (encoding === "latin1" && /[\u0100-\uffff]/.test(text)) {
    return problem("it is Latin-1, which cannot hold a character of a value")
  }
  return Result.succeed(Buffer.from(text, encoding))
}
