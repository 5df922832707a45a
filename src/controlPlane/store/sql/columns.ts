/** A usual value that passes these checks decodes to itself; the schema decides about any other. */
import { Effect, Option, Predicate, Result, Schema } from "effect"
import { Allocations } from "../../../contract/domain/Allocation.ts"
import { InstallPhase, InstallState, InstallStepName } from "../../../contract/domain/InstallState.ts"
import { cleanText, ExitCode, isContractTime } from "../../../contract/domain/NodeText.ts"
import { RecentMap } from "../../../shared/work/RecentMap.ts"
import { JsonColumn, writeRow } from "./rows.ts"

const phases: ReadonlySet<unknown> = new Set(InstallPhase.literals)
const stepNames: ReadonlySet<unknown> = new Set(InstallStepName.literals)

const isPort = (value: unknown): boolean =>
  typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= 65_535
const isExitCode = Schema.is(ExitCode)
const isCleanText = (value: unknown): boolean => typeof value === "string" && cleanText(value) === value
const isTime = (value: unknown): boolean => typeof value === "string" && isContractTime(value)

/** Whether a value is an object that has the first `required` of some fields, maybe others of them, and nothing else. */
const hasFields =
  (required: number, fields: Readonly<Record<string, (value: unknown) => boolean>>) =>
  (value: unknown): boolean => {
    if (!Predicate.isObject(value)) return false
    let missing = required
    const names = Object.keys(fields)
    for (const [name, own] of Object.entries(value)) {
      const at = names.indexOf(name)
      if (at < 0 || fields[name]?.(own) !== true) return false
      if (at < required) missing -= 1
    }
    return missing === 0
  }

const isStep = hasFields(2, { name: (name) => stepNames.has(name), started_at: isTime, finished_at: isTime })

const areSteps = (value: unknown): boolean =>
  Array.isArray(value) &&
  value.every((step, at) => isStep(step) && value.findIndex(({ name }) => name === step.name) === at)

export const isPlainInstall = hasFields(1, {
  phase: (phase) => phases.has(phase),
  exit_code: isExitCode,
  started_at: isTime,
  finished_at: isTime,
  failure_reason: isCleanText,
  steps: areSteps
})

const isPlainAllocations = hasFields(4, {
  force_outgoing_ip: Predicate.isBoolean,
  default: hasFields(2, { ip: Predicate.isString, port: isPort }),
  alias: Predicate.isString,
  mappings: (value) =>
    Predicate.isObject(value) &&
    Object.values(value).every((ports) => Array.isArray(ports) && ports.every(isPort))
})

const parse = Option.liftThrowable((text: string): unknown => JSON.parse(text))

const column = <A, I>(schema: Schema.Codec<A, I>, isPlain: (value: unknown) => boolean) => {
  const stored = JsonColumn(schema)
  const decode = Schema.decodeUnknownResult(stored)
  const encode = writeRow(stored)
  return {
    decode: (text: string): Result.Result<A, Schema.SchemaError> => {
      const value = parse(text)
      // The check is that of the schema.
      return Option.isSome(value) && isPlain(value.value) ? Result.succeed(value.value as A) : decode(text)
    },
    encode: (value: A): Effect.Effect<string> =>
      isPlain(value) ? Effect.succeed(JSON.stringify(value)) : encode(value)
  } as const
}

export const installColumn = column(InstallState, isPlainInstall)
export const allocationsColumn = column(Allocations, isPlainAllocations)

/** Bound of the texts that a column keeps, in characters. */
const MOST_CHARACTERS = 8 * 1024 * 1024
/** The cost of a text beside its own characters. */
const PER_TEXT = 256

/** A JSON column whose values repeat: equal texts share a decoded value. `share` returns an equal value with parts of others. */
export const makeSharedColumn = <A extends object, I>(
  schema: Schema.Codec<A, I>,
  share: (value: A) => A = (value) => value
) => {
  const column = JsonColumn(schema)
  const decodeText = Schema.decodeUnknownResult(column)
  const values = new RecentMap<string, { readonly value: A; readonly length: number }>(
    MOST_CHARACTERS,
    (_, { length }) => length + PER_TEXT
  )

  return {
    /** Returns the value of a key of {@link decode}, if it is kept. */
    known: (key: string): A | undefined => values.get(key)?.value,
    /** @param key has the same text whenever it is given; without one the text itself */
    decode: (text: string, key = text): Result.Result<A, Schema.SchemaError> => {
      const known = values.get(key)
      if (known !== undefined) return Result.succeed(known.value)
      const decoded = Result.map(decodeText(text), share)
      if (Result.isSuccess(decoded)) {
        values.set(key, { value: decoded.success, length: text.length })
      }
      return decoded
    },
    encode: writeRow(column)
  } as const
}

const MOST_TEXTS = 20_000

/** Makes a function that returns one string for equal texts: each row that is read has strings of its own. */
export const makeSharedText = () => {
  const texts = new RecentMap<string, string>(MOST_TEXTS)
  return <T extends string>(text: T): T => {
    const known = texts.get(text)
    // An equal text has the same type.
    if (known !== undefined) return known as T
    texts.set(text, text)
    return text
  }
}
