/** Lines, line ends, edits and encodings of text files. */
import { Result } from "effect"
import type { ConfigParser } from "../../contract/domain/ConfigPatch.ts"
import { type PatchProblem, problem } from "./find.ts"

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
