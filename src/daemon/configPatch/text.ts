/** Lines, line ends and edits of text files. */

/** One line and what ends it: `\n`, `\r\n`, `\r`, or nothing at the end of the file. */
export interface Line {
  readonly text: string
  readonly end: string
}

/** Splits without loss: the lines and their ends, joined, are the text. No line after a final line end. */
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

/** The line end that the text uses first; `\n` where it has none. */
export const lineEndOf = (text: string): string => /\r\n|\n|\r/.exec(text)?.[0] ?? "\n"

/**
 * Puts new lines before `lines[index]`. A file whose last line has no end gets one between, and goes on having
 * none after the last line.
 */
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

/** Puts `text` in place of what stands from `start` to `end`. */
export interface Edit {
  readonly start: number
  readonly end: number
  readonly text: string
}

/** The edited text; edits at one place keep their order. `undefined` if two edits overlap. */
export const applyEdits = (text: string, edits: ReadonlyArray<Edit>): string | undefined => {
  const parts: Array<string> = []
  let at = 0
  for (const edit of edits.toSorted((a, b) => a.start - b.start)) {
    if (edit.start < at) return undefined
    parts.push(text.slice(at, edit.start), edit.text)
    at = edit.end
  }
  return parts.join("") + text.slice(at)
}
