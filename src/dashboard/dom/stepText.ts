/** The steps of a schedule as people write them, in commands and in the dashboard: `wait=60s`, `power=restart`. */
import type { ScheduleRun, ScheduleStep } from "../../contract/domain/Schedule.ts"

export const STEP_FORMS =
  "Steps: `command=LINE`, `wait=60s`, `power=restart` (or another action), `warn=10m,1m:LINE` with {{left}} in the line, `wait-for=running:2m` (or offline), `upgrade`, `backup` (or `backup=TARGET`), `webhook=ID`, or a step of the API as JSON."

const units = { s: 1, m: 60, h: 3600, d: 86_400 } as const

/** Returns the seconds of `90s`, `10m` or `1h`; NaN for another text. */
const secondsOf = (text: string): number => {
  const [, number, unit] = /^([1-9]\d{0,5})([smhd])$/.exec(text.trim()) ?? []
  // The pattern allows the units only.
  return number === undefined ? Number.NaN : Number(number) * units[unit as keyof typeof units]
}

const durationText = (seconds: number): string => {
  const [unit, size] = seconds % 3600 === 0 ? ["h", 3600] : seconds % 60 === 0 ? ["m", 60] : ["s", 1]
  return `${seconds / Number(size)}${unit}`
}

const cut = (text: string, at: string): readonly [string, string] => {
  const place = text.indexOf(at)
  return place === -1 ? [text, ""] : [text.slice(0, place), text.slice(place + 1)]
}

const fromJson = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Reads `10m,1m:LINE`. */
export const readWarning = (text: string) => {
  const [times, line] = cut(text, ":")
  return { warn: { line: line.trim(), at: times.split(",").map(secondsOf) } }
}

/** Returns the step that a text means, if it has the form of one; its values are not checked. */
export const readStep = (text: string): unknown => {
  if (text.startsWith("{")) return fromJson(text)
  const [kind, value] = cut(text, "=")
  switch (kind.trim()) {
    case "command":
      return { command: [value] }
    case "wait":
      return { wait: secondsOf(value) }
    case "warn":
      return readWarning(value)
    case "wait-for": {
      const [status, timeout] = cut(value, ":")
      return { wait_for: status.trim(), timeout: secondsOf(timeout) }
    }
    case "upgrade":
      return { upgrade: {} }
    case "backup":
      return { backup: value.trim() === "" ? {} : { target: value.trim() } }
    case "power":
    case "webhook":
      return { [kind.trim()]: value.trim() }
    default:
      return undefined
  }
}

/** Returns a step in the form that {@link readStep} reads. */
export const stepText = (step: ScheduleStep): string => {
  if ("command" in step && step.command.length === 1) return `command=${step.command[0]}`
  if ("wait" in step) return `wait=${durationText(step.wait)}`
  if ("warn" in step) return `warn=${step.warn.at.map(durationText).join(",")}:${step.warn.line}`
  if ("wait_for" in step) return `wait-for=${step.wait_for}:${durationText(step.timeout)}`
  if ("webhook" in step) return `webhook=${step.webhook}`
  if ("power" in step && step.wait_seconds === undefined) return `power=${step.power}`
  if ("backup" in step) {
    const { target, ...others } = step.backup
    if (Object.keys(others).length === 0) return target === undefined ? "backup" : `backup=${target}`
  }
  return "upgrade" in step && step.upgrade.blueprint_id === undefined ? "upgrade" : JSON.stringify(step)
}

/** Returns how many servers of a run are in each state. */
export const countsOf = ({ servers }: ScheduleRun): string =>
  [...Map.groupBy(Object.values(servers), ({ state }) => state)]
    .map(([state, all]) => `${all.length} ${state}`)
    .join(", ")
