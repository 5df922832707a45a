import { replaceHostile } from "../../contract/domain/NodeText.ts"
import { type Color, paint } from "./terminal.ts"

const GAP = "  "

export type Cell = string | { readonly text: string; readonly color: Color | undefined }

const textIn = (cell: Cell): string => (typeof cell === "string" ? cell : cell.text)

export const isEmpty = (cell: Cell): boolean => textIn(cell) === ""

/** Returns the text of a cell on one line; a dash for an empty text. */
const shownText = (cell: Cell): string => (isEmpty(cell) ? "-" : replaceHostile(textIn(cell), "?"))

const widthOf = (text: string): number => [...text].length

export const rows = (lines: ReadonlyArray<ReadonlyArray<Cell>>): string => {
  const texts = lines.map((line) => line.map(shownText))
  const widths = texts.reduce<ReadonlyArray<number>>(
    (widest, line) => line.map((text, at) => Math.max(widest[at] ?? 0, widthOf(text))),
    []
  )
  const shown = (line: ReadonlyArray<string>, row: number) =>
    line
      .map((text, at) => {
        const cell = lines[row]?.[at]
        const painted = typeof cell === "object" ? paint(text, cell.color) : text
        const isLast = at === line.length - 1
        return isLast ? painted : painted + " ".repeat((widths[at] ?? 0) - widthOf(text))
      })
      .join(GAP)
  return texts.map((line, row) => shown(line, row).trimEnd()).join("\n")
}

/** Returns a table for people: the names of the columns in upper case, then one line per row. */
export const table = (columns: ReadonlyArray<string>, lines: ReadonlyArray<ReadonlyArray<Cell>>): string =>
  rows([columns.map((name) => name.toUpperCase()), ...lines])
