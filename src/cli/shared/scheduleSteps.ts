/** The steps of schedules as the command line writes them. */
import { Duration, Effect, Schema } from "effect"
import { longestOf, ScheduleStep } from "../../contract/domain/Schedule.ts"
import { wrongUsage } from "./failures.ts"
import { DurationText, durationOf, shortDuration } from "./times.ts"

export const STEP_FORMS =
  "Steps: `command=LINE`, `wait=60s`, `power=restart` (or another action), `warn=10m,1m:LINE` with {{left}} in the line, `wait-for=running:2m` (or offline), `upgrade`, `webhook=ID`."

export const NOTICES = "Times before the restart at which players are warned, such as 10m,1m,10s"

const decode = Schema.decodeUnknownEffect(ScheduleStep)
const isDuration = Schema.is(DurationText)

const secondsOf = Effect.fnUntraced(function* (text: string) {
  if (!isDuration(text)) return yield* wrongUsage(`${text}: expected a time such as 90s, 10m or 1h.`)
  return Duration.toSeconds(durationOf(text))
})

const cut = (text: string, at: string): readonly [string, string] => {
  const place = text.indexOf(at)
  return place === -1 ? [text, ""] : [text.slice(0, place), text.slice(place + 1)]
}

/** Reads `10m,1m:LINE`. */
export const warningOf = Effect.fnUntraced(function* (text: string) {
  const [times, line] = cut(text, ":")
  const at = yield* Effect.forEach(times.split(","), secondsOf)
  if (line === "")
    return yield* wrongUsage(`${text}: expected times and a line, such as 10m,1m:say Restart in {{left}}.`)
  return { warn: { line, at } } satisfies ScheduleStep
})

const given = Effect.fnUntraced(function* (text: string) {
  const [kind, value] = cut(text, "=")
  switch (kind) {
    case "command":
      return { command: [value] }
    case "wait":
      return { wait: yield* secondsOf(value) }
    case "warn":
      return yield* warningOf(value)
    case "wait-for": {
      const [status, timeout] = cut(value, ":")
      return { wait_for: status, timeout: yield* secondsOf(timeout) }
    }
    case "upgrade":
      return { upgrade: {} }
    default:
      return { [kind]: value }
  }
})

/** Reads a step. @error CommandError it has another form */
export const stepOf = Effect.fnUntraced(function* (text: string) {
  return yield* Effect.catchTag(decode(yield* given(text)), "SchemaError", () =>
    wrongUsage(`--step ${text} is no step. ${STEP_FORMS}`)
  )
})

/** Returns a step in a few words. */
export const stepText = (step: ScheduleStep): string => {
  if ("command" in step) return `command ${step.command.join(" / ")}`
  if ("power" in step) return step.power
  if ("wait_for" in step) return `wait for ${step.wait_for}, ${shortDuration(step.timeout)}`
  if ("webhook" in step) return `webhook ${step.webhook}`
  if ("upgrade" in step) return "upgrade"
  return `${"warn" in step ? "warn" : "wait"} ${shortDuration(longestOf(step))}`
}
