/** Units of numbers in files and requests, for messages about other spellings: `4G`, `50%`, `5m`. */
import { Schema, type SchemaAST } from "effect"

const MEBI = 1024 * 1024

/** The unit of a number, as messages name it, and the value of other spellings in it. */
const units = {
  "a number of MiB": { k: 1 / 1024, m: 1, g: 1024, t: MEBI },
  "a number of MB": {
    ...{ k: 0.001, m: 1, g: 1000, t: MEBI },
    ...{ ki: 1024 / 1e6, mi: MEBI / 1e6, gi: (1024 * MEBI) / 1e6, ti: (MEBI * MEBI) / 1e6 }
  },
  "a number in percent of one thread": { "%": 1, m: 0.1, c: 100, core: 100, cpu: 100, thread: 100 },
  "a number of seconds": {
    ...{ s: 1, sec: 1, second: 1, m: 60, min: 60, minute: 60 },
    ...{ h: 3600, hour: 3600, d: 86_400, day: 86_400 }
  }
} as const satisfies Readonly<Record<string, Readonly<Record<string, number>>>>
export type Unit = keyof typeof units

const UNIT = "unit"

export const inUnit = (unit: Unit): { readonly [UNIT]: Unit } => ({ [UNIT]: unit })

const isUnit = (value: unknown): value is Unit => typeof value === "string" && Object.hasOwn(units, value)

export const unitOf = ({ checks }: SchemaAST.AST): Unit | undefined =>
  checks?.map(({ annotations }) => annotations?.[UNIT]).find(isUnit)

/** Returns the schema or null; its message names the unit. */
export const nullOr = <S extends Schema.Constraint>(schema: S) => {
  const unit = unitOf(schema.ast)
  return Schema.NullOr(schema).annotate(unit === undefined ? {} : { message: `Expected ${unit} | null` })
}

/** Returns the hint about a text that is an amount in another spelling; else nothing. */
export const amountHint = (unit: string, value: unknown): string => {
  const [, amount = "", suffix = ""] =
    typeof value === "string" ? (/^\s*(\d{1,9}(?:\.\d{1,9})?)\s*([a-z]{1,9}|%)\s*$/i.exec(value) ?? []) : []
  const name = suffix.toLowerCase()
  const factors = isUnit(unit) ? new Map<string, number>(Object.entries(units[unit])) : undefined
  const factor = [name, name.replace(/b$/, ""), name.replace(/ib?$/, ""), name.replace(/s$/, "")]
    .map((spelling) => factors?.get(spelling))
    .find((found) => found !== undefined)
  return factor === undefined ? "" : ` (${Math.ceil(Number((Number(amount) * factor).toFixed(3)))} here)`
}
