/** The tables and values of a TOML file, with their places in its text. */
import { Result } from "effect"
import { type AST, ParseError, parseTOML } from "toml-eslint-parser"
import { type Data, readDeep, Written } from "./data.ts"
import { type PatchProblem, placeIn, problem } from "./find.ts"

export interface Table {
  readonly parent: Table | undefined
  readonly name: string
  readonly kind: "header" | "dotted" | AST.TOMLInlineTable
  readonly children: Map<string, Part>
  /** Where its headers and the pairs whose last key is in it stand in the text. */
  readonly places: Array<AST.Range>
}
export type Value = Exclude<AST.TOMLContentNode, AST.TOMLInlineTable>
/** A list is an array of tables, `[[name]]`. */
export type Part = Value | Table | Array<Table>

export const isTables = (part: Part | undefined): part is Array<Table> => Array.isArray(part)
export const isTable = (part: Part | undefined): part is Table => part !== undefined && "children" in part

const tableOf = (parent: Table | undefined, name: string, kind: Table["kind"]): Table => ({
  parent,
  name,
  kind,
  children: new Map(),
  places: []
})

const addPair = (to: Table, { key, range, value }: AST.TOMLKeyValue): void => {
  const names = key.keys.map((part) => (part.type === "TOMLBare" ? part.name : part.value))
  let table = to
  for (const name of names.slice(0, -1)) {
    const known = table.children.get(name)
    const next = isTable(known) ? known : tableOf(table, name, "dotted")
    table.children.set(name, next)
    table = next
  }
  table.children.set(names.at(-1) ?? "", partOf(value))
  table.places.push(range)
}

export const partOf = (node: AST.TOMLContentNode): Part => {
  if (node.type !== "TOMLInlineTable") return node
  const table = tableOf(undefined, "", node)
  for (const pair of node.body) addPair(table, pair)
  return table
}

/** Returns the table that a header leads to; the parser has checked that the text defines nothing twice. */
const headed = (root: Table, path: ReadonlyArray<string | number>): Table => {
  let table = root
  path.forEach((name, n) => {
    if (typeof name === "number") return
    const index = path[n + 1]
    const known = table.children.get(name)
    const tables = isTables(known) ? known : []
    const next =
      (typeof index === "number" ? tables[index] : isTable(known) ? known : undefined) ??
      tableOf(table, name, "header")
    if (typeof index === "number") tables[index] = next
    table.children.set(name, typeof index === "number" ? tables : next)
    table = next
  })
  return table
}

/** Returns the value of a part. A date is the text of the file. */
const dataOf = (root: Part) =>
  readDeep<Part>(root, (part, read) => {
    if (isTables(part)) return part.map(read)
    if (isTable(part)) return new Map([...part.children].map(([name, child]) => [name, read(child)]))
    if (part.type === "TOMLArray") return part.elements.map((item) => read(partOf(item)))
    if ("datetime" in part) return part.datetime
    if (part.kind === "float") return new Written(part.value, part.number)
    return part.kind === "integer" && !Number.isSafeInteger(part.value) ? part.bigint : part.value
  })

export interface Read {
  readonly root: Table
  readonly data: Data
}

export const readToml = (text: string): Result.Result<Read, PatchProblem> => {
  const parsed = Result.try(() => parseTOML(text))
  if (Result.isFailure(parsed)) {
    const error = parsed.failure
    const what = error instanceof ParseError ? error.message : String(error)
    const place = error instanceof ParseError ? ` at ${placeIn(text, error.index)}` : ""
    return problem(`it is not valid TOML: ${what.charAt(0).toLowerCase()}${what.slice(1)}${place}`)
  }
  const root = tableOf(undefined, "", "header")
  for (const item of parsed.success.body[0].body) {
    if (item.type === "TOMLKeyValue") addPair(root, item)
    else {
      const table = headed(root, item.resolvedKey)
      table.places.push(item.key.range)
      for (const pair of item.body) addPair(table, pair)
    }
  }
  return Result.map(dataOf(root), (data) => ({ root, data }))
}

/** Returns the places of a table: without `deep` those that its own header and the keys behind it take. */
export const placesOf = (table: Table, deep: boolean): ReadonlyArray<AST.Range> => [
  ...table.places,
  ...[...table.children.values()].flatMap((child) => {
    if (isTables(child)) return deep ? child.flatMap((one) => placesOf(one, deep)) : []
    return isTable(child) && (child.kind === "dotted" || (deep && child.kind === "header"))
      ? placesOf(child, deep)
      : []
  })
]

/** Returns the keys that lead to a table: all of them, or those that its pairs begin with. */
export const pathOf = ({ kind, name, parent }: Table, whole: boolean): ReadonlyArray<string> =>
  parent === undefined || (kind !== "dotted" && !whole) ? [] : [...pathOf(parent, whole), name]
