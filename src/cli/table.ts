/** Between two columns. */
const GAP = "  "

/** What would end the line, or the column, or is for the terminal. */
const control = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu

/** One line; a dash where there is nothing to say. */
const cellOf = (text: string): string => (text === "" ? "-" : text.replaceAll(control, "?"))

const widthOf = (cell: string): number => [...cell].length

/**
 * A table for people: upper-case names of its columns in the first line, a line a row, columns below each other.
 * Programs take `--json` where there is such.
 */
export const table = (columns: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const lines = [columns.map((name) => name.toUpperCase()), ...rows.map((row) => row.map(cellOf))]
  const widths = columns.map((_, index) => Math.max(...lines.map((line) => widthOf(line[index] ?? ""))))
  const padded = (cell: string, index: number) =>
    cell + " ".repeat(Math.max(0, (widths[index] ?? 0) - widthOf(cell)))
  return lines.map((line) => line.map(padded).join(GAP).trimEnd()).join("\n")
}
