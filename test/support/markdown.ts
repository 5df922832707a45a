/** Code blocks and tables of a Markdown text, for tests of the documents. */

/** A fenced block: ```` ```language title ````. */
export interface Block {
  readonly language: string
  readonly title: string
  readonly code: string
}

export const blocksOf = (text: string): ReadonlyArray<Block> =>
  [...text.matchAll(/^```(\w+)(?: ([\w-]+))?\n((?:(?!```)[^\n]*\n)*)```$/gm)].map(
    ([, language = "", title = "", code = ""]) => ({ language, title, code })
  )

/** Rows of the table that follows `<!-- marker -->`, without its head; a cell that is only code, without its quotes. */
export const tableOf = (text: string, marker: string): ReadonlyArray<ReadonlyArray<string>> => {
  const [, table = ""] = text.split(`<!-- ${marker} -->\n`)
  const lines = table.split("\n")
  const end = lines.findIndex((line) => !line.startsWith("|"))
  return lines.slice(2, end).map((line) =>
    line
      .split(/(?<!\\)\|/)
      .slice(1, -1)
      .map((cell) => cell.trim())
  )
}

/** The code that a cell consists of; undefined where it is prose. */
export const codeOf = (cell = ""): string | undefined => /^`([^`]*)`$/.exec(cell)?.[1]
