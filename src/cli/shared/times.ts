/** Times of the command line: durations such as `90s`, `12h` and `30d`, and moments. */
import { DateTime, Duration, Option, Schema } from "effect"
import { Flag } from "effect/cli"

const units = { s: "seconds", m: "minutes", h: "hours", d: "days" } as const

export const DurationText = Schema.String.check(
  Schema.isPattern(/^[1-9]\d{0,5}[smhd]$/, { message: "expected a time such as 90s, 90m, 12h or 30d" })
)

const isUnit = (text: string): text is keyof typeof units => Object.hasOwn(units, text)

export const durationOf = (text: string): Duration.Duration => {
  const unit = text.slice(-1)
  return Duration.fromInputUnsafe(`${Number(text.slice(0, -1))} ${isUnit(unit) ? units[unit] : "seconds"}`)
}

/** @param most the longest one */
export const secondsFlag = (name: string, description: string, most = "999999d") =>
  Flag.String(name).pipe(
    Flag.withDescription(description),
    Flag.withSchema(DurationText),
    Flag.filter(
      (text) => Duration.isLessThanOrEqualTo(durationOf(text), durationOf(most)),
      () => `expected at most ${most}`
    ),
    Flag.map((text) => Duration.toSeconds(durationOf(text))),
    Flag.optional
  )

const MINUTE = 60
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** Returns a number of seconds for people, in its two largest units. */
export const shortDuration = (seconds: number): string => {
  const whole = Math.max(0, Math.floor(seconds))
  if (whole < MINUTE) return `${whole}s`
  if (whole < HOUR) return `${Math.floor(whole / MINUTE)}m${whole % MINUTE}s`
  if (whole < DAY) return `${Math.floor(whole / HOUR)}h${Math.floor((whole % HOUR) / MINUTE)}m`
  return `${Math.floor(whole / DAY)}d${Math.floor((whole % DAY) / HOUR)}h`
}

const isDuration = Schema.is(DurationText)

/** Returns a moment as RFC 3339 in UTC, if the text is a time. */
export const momentOf = (text: string): string | undefined => {
  if (isDuration(text)) {
    return DateTime.formatIso(DateTime.subtractDuration(DateTime.nowUnsafe(), durationOf(text)))
  }
  return Option.getOrUndefined(Option.map(DateTime.make(text), DateTime.formatIso))
}

export const A_TIME = "a time such as 24h or 2026-01-31T12:00:00Z"

const timeFlag = (name: string, description: string) =>
  Flag.String(name).pipe(
    Flag.withDescription(`${description}: 30m, 24h, 7d ago, or 2026-01-31T12:00:00Z`),
    Flag.filterMap(
      (text) => Option.fromUndefinedOr(momentOf(text)),
      () => A_TIME
    ),
    Flag.optional
  )

export const sinceFlag = (description: string) => timeFlag("since", description)

export const untilFlag = (description: string) => timeFlag("until", description)
