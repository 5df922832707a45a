/** The text of TOML values. */
import { type Data, type DataMap, isList, isMap, Written } from "./data.ts"
import { isTable, type Part } from "./tomlTree.ts"

/** Prints a text as a basic string. */
const quoted = (text: string): string => JSON.stringify(text).replaceAll("\x7f", "\\u007f")

const keyText = (keys: ReadonlyArray<string>): string =>
  keys.map((key) => (/^[\w-]+$/.test(key) ? key : quoted(key))).join(".")

export const pairText = (keys: ReadonlyArray<string>, value: Data): string =>
  `${keyText(keys)} = ${valueText(value)}`

const date = /^(?=.)(?:\d{4}-\d\d-\d\d)?(?:(?:^|[Tt ])\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:\d\d)?)?$/

/** Prints a value on one line, in the form of `old`: a date, a text in single quotes. */
export const valueText = (value: Data, old?: Part): string => {
  if (value instanceof Written) return value.text
  if (isMap(value)) {
    const pairs = [...value].map(([key, inner]) => pairText([key], inner))
    return pairs.length === 0 ? "{}" : `{ ${pairs.join(", ")} }`
  }
  if (isList(value)) return `[${value.map((item) => valueText(item)).join(", ")}]`
  const form =
    old === undefined || Array.isArray(old) || isTable(old) || old.type === "TOMLArray" ? undefined : old
  if (typeof value === "string") {
    if (form !== undefined && "datetime" in form && date.test(value)) return value
    const literal = form?.kind === "string" && form.style === "literal" && !/['\p{Cc}]/u.test(value)
    return literal ? `'${value}'` : quoted(value)
  }
  const text = String(value)
  // integers have 64 bits
  return typeof value === "number" && /^-?\d+$/.test(text) && Math.abs(value) >= 2 ** 63 ? `${text}.0` : text
}

/** Returns whether new members are tables with headers. */
export const isSection = (value: Data): boolean =>
  isMap(value) || (isList(value) && value.length > 0 && value.every(isMap))

/** Returns the lines of a new table, or of the items of a new array of tables, each after an empty line. */
export const sectionLines = (path: ReadonlyArray<string>, value: Data): ReadonlyArray<string> => {
  if (isMap(value)) return tableLines(path, value, "[", "]")
  return isList(value) ? value.filter(isMap).flatMap((item) => tableLines(path, item, "[[", "]]")) : []
}

const tableLines = (path: ReadonlyArray<string>, map: DataMap, open: string, close: string) => {
  const pairs = [...map]
    .filter(([, value]) => !isSection(value))
    .map(([key, value]) => pairText([key], value))
  const inner = [...map].flatMap(([key, value]) =>
    isSection(value) ? sectionLines([...path, key], value) : []
  )
  const headless = open === "[" && pairs.length === 0 && inner.length > 0
  return headless ? inner : ["", open + keyText(path) + close, ...pairs, ...inner]
}
