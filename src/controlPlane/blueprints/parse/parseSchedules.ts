/** `schedules:` of blueprints and mixins (spec 13.7). */
import { Result, Schema } from "effect"
import { pathText } from "../../../contract/domain/json.ts"
import { mistakesOf } from "../../../contract/domain/mistakes.ts"
import {
  type BlueprintSchedule,
  Condition,
  MOST_OF_SERVER,
  MOST_STEPS,
  type ScheduleStep,
  ScheduleSteps,
  scheduleDefaults,
  scheduleFields,
  stepKinds
} from "../../../contract/domain/Schedule.ts"
import { timesOf, whyNoZone } from "../../../shared/work/cronTimes.ts"
import {
  boolean,
  type Decoder,
  describe,
  expected,
  json,
  list,
  type Mapping,
  mapping,
  normal,
  number,
  required,
  text,
  unknownKey,
  withDefault,
  word
} from "./decode.ts"
import type { Entry, Located } from "./located.ts"

/** Returns the deepest part of a value on a path, with the entry that has it. */
const follow = (
  node: Located,
  [name, ...rest]: ReadonlyArray<string>,
  entry?: Entry
): { readonly node: Located; readonly entry?: Entry | undefined } => {
  const next = node.kind === "map" ? node.entries.find(({ key }) => key === name) : undefined
  const child = node.kind === "list" ? node.items[Number(name)] : next?.node
  return name === undefined || child === undefined ? { node, entry } : follow(child, rest, next)
}

/** Writes the keys of a mapping, and of the mappings in it, with `_`. */
const underscored = (node: Located, depth = 2): Located =>
  node.kind !== "map" || depth === 0
    ? node
    : {
        ...node,
        entries: node.entries.map((entry) => ({
          ...entry,
          key: normal(entry.key),
          node: underscored(entry.node, depth - 1)
        }))
      }

/** Decodes a value by the schema that the API has for it; a mistake has the position of its part. */
const bySchema =
  <A>(schema: Schema.Codec<A, unknown>): Decoder<A> =>
  (written, reading) => {
    const node = underscored(written)
    const value = json(node, reading)
    if (value === undefined) return undefined
    const options = { errors: "all", onExcessProperty: "error" } as const
    const decoded = Schema.decodeUnknownResult(schema, options)(value)
    if (Result.isSuccess(decoded)) return decoded.success
    for (const { known, message, path } of mistakesOf(decoded.failure.issue, value)) {
      const found = follow(node, path)
      const field = path.length === 0 ? "" : `\`${pathText(path)}\`: `
      if (known === undefined)
        reading.problem(found.node.at, `${field}${message.replace(/^Expected/, "expected")}`)
      else reading.problem(found.entry?.at ?? node.at, unknownKey(path.at(-1) ?? "", known))
    }
    return undefined
  }

const kindNames = Object.keys(stepKinds).join(", ")

const step: Decoder<ScheduleStep> = (written, reading) => {
  const node = underscored(written)
  if (node.kind !== "map") return expected(node, reading, `a step: a mapping with one of ${kindNames}`)
  const [kind] = Object.entries(stepKinds).filter(([name]) => node.entries.some(({ key }) => key === name))
  if (kind !== undefined) return bySchema<ScheduleStep>(kind[1])(node, reading)
  const [first] = node.entries
  reading.problem(
    first?.at ?? node.at,
    first === undefined
      ? `expected a step, found ${describe(node)}`
      : unknownKey(first.key, Object.keys(stepKinds))
  )
  return undefined
}

const steps: Decoder<ReadonlyArray<ScheduleStep>> = (node, reading) => {
  const found = list(step, "steps")(node, reading)
  if (node.kind !== "list") return undefined
  const { length } = node.items
  if (length === 0 || length > MOST_STEPS)
    return expected(node, reading, `1 to ${MOST_STEPS} steps`, `; there are ${length}`)
  if (found?.length === length && !Schema.is(Schema.toType(ScheduleSteps))(found))
    reading.problem(node.at, "expected steps that take at most 24 h together")
  return found
}

export const schedulePart: Mapping<BlueprintSchedule> = mapping("schedules.*.", {
  name: required(text(scheduleFields.name)),
  cron: required(text(scheduleFields.cron, "a cron such as `0 4 * * *`")),
  timezone: withDefault(
    text(scheduleFields.timezone, "a time zone such as Europe/Berlin"),
    scheduleDefaults.timezone
  ),
  steps: required(steps),
  enabled: withDefault(boolean, scheduleDefaults.enabled),
  only_if: bySchema(Condition),
  missed: withDefault(word(scheduleFields.missed.literals), scheduleDefaults.missed),
  catch_up: withDefault(number(scheduleFields.catch_up), scheduleDefaults.catch_up),
  overlap: withDefault(word(scheduleFields.overlap.literals), scheduleDefaults.overlap),
  max_parallel: withDefault(number(scheduleFields.max_parallel), scheduleDefaults.max_parallel),
  stagger: withDefault(number(scheduleFields.stagger), scheduleDefaults.stagger),
  on_failure: withDefault(word(scheduleFields.on_failure.literals), scheduleDefaults.on_failure)
})

/** Any moment: a cron without a year has a next time at each, or at none. */
const ANY = Date.UTC(2026, 0, 1)

const schedule: Decoder<BlueprintSchedule> = (node, reading) => {
  const found = schedulePart(node, reading)
  if (found === undefined) return undefined
  const { cron, timezone } = found
  const times = timesOf(cron, timezone)
  const field = whyNoZone(timezone) === undefined ? "cron" : "timezone"
  const place = follow(node, [field]).node.at
  if (Result.isFailure(times)) reading.problem(place, `\`${field}\`: ${times.failure}`)
  else if (times.success.next(ANY) === undefined)
    reading.problem(place, `\`cron\`: it has no next time: ${cron}`)
  return found
}

/** Returns why there are too many schedules, if there are. */
export const tooManySchedules = ({ length }: ReadonlyArray<BlueprintSchedule>): string | undefined =>
  length > MOST_OF_SERVER ? `expected at most ${MOST_OF_SERVER} schedules, found ${length}` : undefined

export const schedules: Decoder<ReadonlyArray<BlueprintSchedule>> = (node, reading) => {
  const names = new Set<string>()
  const found = list((item) => {
    const read = schedule(item, reading)
    if (read !== undefined && names.has(read.name))
      reading.problem(item.at, `the schedule \`${read.name}\` is there twice`)
    else if (read !== undefined) names.add(read.name)
    return read
  }, "schedules")(node, reading)
  const many = tooManySchedules(found ?? [])
  if (many !== undefined) reading.problem(node.at, many)
  return found
}
