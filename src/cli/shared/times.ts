/** Times of the command line: a moment, or how long ago. */
import { DateTime, Option, Schema } from "effect"
import { Flag } from "effect/cli"
import { DurationText, durationOf } from "./durations.ts"

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
