/** The forms of a command's result: `-o table|wide|json|jsonl|id` (spec 8). */
import { Console, Effect } from "effect"
import { type Argument, Flag } from "effect/cli"
import { escapeText, replaceHostile } from "../../contract/domain/NodeText.ts"
import { command, switchFlag, type Texts } from "./command.ts"
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

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"]

/** Returns a number of bytes for people: `512 B`, `1.5 MiB`, `340 MiB`. */
export const sizeText = (bytes: number): string => {
  let unit = 0
  let value = bytes
  while (value >= 1023.5 && unit < UNITS.length - 1) {
    value /= 1024
    unit++
  }
  return `${unit > 0 && value < 9.95 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`
}

const formats = ["table", "wide", "json", "jsonl", "id"] as const

export const outputFlags = {
  output: Flag.Literals("output", formats).pipe(
    Flag.withAlias("o"),
    Flag.withDescription(
      "`table`; `wide`: with more columns; `json`: as the API returns it; `jsonl`: one object a line; `id`: ids only"
    ),
    Flag.withDefault("table")
  ),
  json: switchFlag("json", "The same as -o json")
} as const

export interface OutputOptions {
  readonly output: (typeof formats)[number]
  readonly json: boolean
}

/** A column of a table. */
interface Column<A> {
  (item: A): Cell
  /** Whether only `-o wide` shows the column in a table of several objects. */
  readonly isWide?: true
}

/** Makes a column that only `-o wide` shows. */
export const wide = <A>(of: (item: A) => Cell): Column<A> =>
  Object.assign((item: A) => of(item), { isWide: true as const })

/** How objects are shown: the columns by their names, and the id; default: the column `id`, else the first one. */
export interface Listing<A> {
  readonly columns: Readonly<Record<string, Column<A>>>
  readonly id?: (item: A) => Cell
}

const idOf = <A>({ columns, id = columns.id ?? Object.values(columns)[0] }: Listing<A>, item: A): string =>
  id === undefined ? "" : textIn(id(item))

/** Returns a value as JSON without characters that act on a terminal. */
export const jsonOf = (value: unknown, space?: number): string =>
  // JSON escapes control characters itself; format characters remain.
  escapeLines(JSON.stringify(value, null, space))

const escapeLines = (text: string): string => text.split("\n").map(escapeText).join("\n")

export const formatOf = ({ json, output }: OutputOptions): OutputOptions["output"] => (json ? "json" : output)

/** The columns of a table, as pairs of a name and what it shows. */
export const shownColumns = <A>({ columns }: Listing<A>, isWide: boolean) =>
  Object.entries(columns).filter(([, column]) => isWide || column.isWide !== true)

export const tableOfItems = <A>(listing: Listing<A>, items: ReadonlyArray<A>, isWide = false): string => {
  const columns = shownColumns(listing, isWide)
  return table(
    columns.map(([name]) => name),
    items.map((item) => columns.map(([, of]) => of(item)))
  )
}

const linesOf = <A>(format: "jsonl" | "id", listing: Listing<A>, items: ReadonlyArray<A>): string =>
  items.map((item) => (format === "id" ? escapeText(idOf(listing, item)) : jsonOf(item))).join("\n")

/** Prints objects in the form that the flags name. If there is none, people get `empty` on standard error. */
export const printList = <A>(
  flags: OutputOptions,
  listing: Listing<A>,
  items: ReadonlyArray<A>,
  empty: string
): Effect.Effect<void> => {
  const format = formatOf(flags)
  if (format === "json") return Console.log(jsonOf(items, 2))
  if (format === "jsonl" || format === "id") {
    return items.length === 0 ? Effect.void : Console.log(linesOf(format, listing, items))
  }
  return items.length === 0
    ? Console.error(empty)
    : Console.log(tableOfItems(listing, items, format === "wide"))
}

/** Prints one object: as a table, one line for each field that has a value. */
export const printOne = <A>(flags: OutputOptions, listing: Listing<A>, item: A): Effect.Effect<void> => {
  const format = formatOf(flags)
  if (format === "json") return Console.log(jsonOf(item, 2))
  if (format === "jsonl" || format === "id") return Console.log(linesOf(format, listing, [item]))
  const fields = Object.entries(listing.columns).map(([name, of]): [string, Cell] => [`${name}:`, of(item)])
  return Console.log(rows(fields.filter(([, value]) => !isEmpty(value))))
}

/** A command `list`, which reads objects and prints them. */
export const listCommand = <A, E, R>(
  listing: Listing<A>,
  read: Effect.Effect<ReadonlyArray<A>, E, R>,
  empty: string,
  texts: Texts
) =>
  command("list", {
    ...texts,
    input: outputFlags,
    *run(flags) {
      yield* printList(flags, listing, yield* read, empty)
    }
  })

/** A command that calls a route for the object of its argument, and prints what it returns. */
export const objectCommand = <A, E, R>(
  name: string,
  argument: Argument.Argument<string>,
  listing: Listing<A>,
  call: (object: string) => Effect.Effect<A, E, R>,
  texts: Texts
) =>
  command(name, {
    ...texts,
    input: { object: argument, ...outputFlags },
    *run({ object, ...flags }) {
      yield* printOne(flags, listing, yield* call(object))
    }
  })
