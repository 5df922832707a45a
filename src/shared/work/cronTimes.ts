/** The times of a schedule (spec 13.3). This module is the only one that knows `croner`. */
import { Cron } from "croner"
import { Option, Result } from "effect"

export interface Times {
  /** Returns the first time after another one, in milliseconds since the epoch, if there is one. */
  next(after: number): number | undefined
  /** Returns the seconds by which local time is ahead of UTC. */
  offset(at: number): number
  /** Whether the minute and the hour are single values, lists or ranges. */
  readonly isFixed: boolean
}

const FIVE = "Expected five fields: minute, hour, day of month, month, day of week; for example 0 4 * * *."

/** The messages of `croner` count days and months from 0. */
const VALUES =
  "expected a minute to 59, an hour to 23, a day from 1 to 31, a month from 1 to 12, a day of the week to 7"

/** Names of days, which contain a W, before the fields are checked for the W of other dialects. */
const dayNames = /\b(?:sun|mon|tue|wed|thu|fri|sat)/gi

/** Returns why a cron has another form than Muster reads, if it does. */
const refusal = (fields: ReadonlyArray<string>): string | undefined => {
  if (fields.length === 6) return `it has six fields. ${FIVE} Leave the seconds out.`
  if (fields.length !== 5)
    return `it has ${fields.length === 1 ? "one field" : `${fields.length} fields`}. ${FIVE}`
  const strange = fields.find((field) => !/^[a-z0-9*,/#-]+$/i.test(field))
  if (strange !== undefined) return `${strange}: expected numbers, names of months and days, and * , - / L #.`
  return /w/i.test(fields[2]?.replaceAll(dayNames, "") ?? "")
    ? `${fields[2]}: W is not supported.`
    : undefined
}

const offsetFormat = (timeZone: string) =>
  new Intl.DateTimeFormat("en-US", { timeZone, timeZoneName: "longOffset" })

/** Reads the end of a time such as `GMT+02:00`. */
const offsetOf = (format: Intl.DateTimeFormat, at: number): number => {
  const [, sign, hours = 0, minutes = 0, seconds = 0] =
    /GMT([+-])(\d\d):(\d\d)(?::(\d\d))?$/.exec(format.format(at)) ?? []
  return (sign === "-" ? -1 : 1) * (Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds))
}

/** Returns why no such time zone exists, if none does. */
export const whyNoZone = (timezone: string): string | undefined => {
  const known = /^[A-Za-z]/.test(timezone)
    ? Result.try(() => offsetFormat(timezone))
    : Result.fail("an offset")
  return Result.isFailure(known)
    ? `no time zone has this name: ${timezone}. Expected a name such as Europe/Berlin or UTC.`
    : undefined
}

/** Reads a cron in a time zone; a failure says why it cannot be used. */
export const timesOf = (cron: string, timezone: string): Result.Result<Times, string> => {
  const zone = whyNoZone(timezone)
  if (zone !== undefined) return Result.fail(zone)
  const fields = cron.trim().split(/\s+/)
  const why = refusal(fields)
  if (why !== undefined) return Result.fail(why)
  const read = Result.try({
    // Lists and ranges are fixed times, too: of these, croner runs those of a missing hour at its end.
    try: () => new Cron(fields.join(" "), { timezone, mode: "5-part", fixedTimeRule: "no-wildcard" }),
    catch: (error) =>
      (error instanceof Error ? error.message : String(error))
        .replace(/^CronPattern: /, "")
        .replace(/^Invalid value for .*/, `${VALUES}: ${cron}`)
  })
  return Result.map(read, (pattern) => {
    const format = offsetFormat(timezone)
    return {
      next: (after) =>
        Option.getOrUndefined(
          Option.map(Option.fromNullishOr(pattern.nextRun(new Date(after))), (date) => date.getTime())
        ),
      offset: (at) => offsetOf(format, at),
      isFixed: !/[*/]/.test(fields.slice(0, 2).join(""))
    }
  })
}

export interface PlannedTime {
  readonly at: number
  /** Said if the clocks change since the time before. */
  readonly note?: string
}

const clock = (seconds: number): string => {
  const minutes = Math.abs(Math.round(seconds / 60))
  const text = `${String(Math.floor(minutes / 60)).padStart(2, "0")}:${String(minutes % 60).padStart(2, "0")}`
  return `UTC${seconds < 0 ? "-" : "+"}${text}`
}

/** Returns the next times after a moment, with a note where the clocks change. */
export const nextTimes = (times: Times, after: number, count: number): ReadonlyArray<PlannedTime> => {
  const planned: Array<PlannedTime> = []
  let before = after
  while (planned.length < count) {
    const at = times.next(before)
    if (at === undefined) break
    const [earlier, later] = [times.offset(before), times.offset(at)]
    const way = later > earlier ? "forward" : "back"
    const minutes = Math.round(Math.abs(later - earlier) / 60)
    planned.push({
      at,
      ...(later === earlier
        ? {}
        : { note: `the clocks go ${way} by ${minutes} min, from ${clock(earlier)} to ${clock(later)}` })
    })
    before = at
  }
  return planned
}
