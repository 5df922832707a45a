import { replaceHostile } from "../domain/NodeText.ts"

/** Separates two columns. */
const GAP = "  "

/** Returns a cell of one line; a dash for an empty text. */
const cellOf = (text: string): string => (text === "" ? "-" : replaceHostile(text, "?"))

const widthOf = (cell: string): number => [...cell].length

/** Returns a table for people: the names of the columns in upper case, then one line per row. */
export const table = (columns: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const lines = [columns.map((name) => name.toUpperCase()), ...rows.map((row) => row.map(cellOf))]
  const widths = columns.map((_, index) => Math.max(...lines.map((line) => widthOf(line[index] ?? ""))))
  const padded = (cell: string, index: number) =>
    cell + " ".repeat(Math.max(0, (widths[index] ?? 0) - widthOf(cell)))
  return lines.map((line) => line.map(padded).join(GAP).trimEnd()).join("\n")
}
