/** A usual value that passes these checks decodes to itself; the schema decides about any other. */
import { Effect, Option, Predicate, Result, Schema } from "effect"
import { Allocations } from "../../../contract/domain/Allocation.ts"
import { InstallPhase, InstallState, InstallStepName } from "../../../contract/domain/InstallState.ts"
import { cleanText, ExitCode, isContractTime } from "../../../contract/domain/NodeText.ts"
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
