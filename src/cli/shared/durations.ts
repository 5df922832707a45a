/** Durations of the command line: `90s`, `12h`, `30d`. */
import { Duration, Schema } from "effect"
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
