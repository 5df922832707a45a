import { inspect } from "node:util"
import { Array, Cause, Layer, Logger, type LogLevel, Redactable, References } from "effect"
import type { ServiceSettings } from "../config/service.ts"
import { escapeText } from "../domain/NodeText.ts"

const levels = { debug: "Debug", info: "Info", warn: "Warn", error: "Error" } as const

const BOLD = "1"
const CYAN = "36"
const colors: Partial<Record<LogLevel.LogLevel, string>> = {
  Debug: "34",
  Info: "32",
  Warn: "33",
  Error: "31",
  Fatal: "31"
}

const timeOf = (date: Date): string => {
  const two = (value: number) => String(value).padStart(2, "0")
  const clock = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":")
  return `${clock}.${String(date.getMilliseconds()).padStart(3, "0")}`
}

/** Text of several lines below an entry: each line is escaped, and no line looks like the first one of an entry. */
const below = (text: string): ReadonlyArray<string> =>
  text.split("\n").map((line) => `  ${escapeText(line.trimEnd())}`)

const textOf = (value: unknown): string => {
  const shown = Redactable.redact(value)
  return typeof shown === "string" ? escapeText(shown) : inspect(shown, { depth: 4 })
}

/**
 * Entries for people: one line, then causes, values and annotations, indented. Names and texts from outside are escaped:
 * they end no line, start no entry and steer no terminal.
 */
const formatPretty = (colored: boolean) => {
  const paint = (text: string, ...codes: ReadonlyArray<string>) =>
    colored ? `${codes.map((code) => `\u001b[${code}m`).join("")}${text}\u001b[0m` : text
  return Logger.make<unknown, string>(({ cause, date, fiber, logLevel, message }) => {
    const spans = fiber
      .getRef(References.CurrentLogSpans)
      .map(([label, since]) => ` ${escapeText(label)}=${date.getTime() - since}ms`)
    const [first, ...others] = Array.ensure(message)
    const isText = typeof first === "string"
    const head = `[${timeOf(date)}] ${paint(logLevel.toUpperCase(), colors[logLevel] ?? "90")} (#${fiber.id})`
    return [
      `${head}${spans.join("")}:${isText ? ` ${paint(escapeText(first), BOLD, CYAN)}` : ""}`,
      ...(cause.reasons.length > 0 ? below(Cause.pretty(cause)) : []),
      ...(isText ? others : Array.ensure(message)).flatMap((value) => below(textOf(value))),
      ...Object.entries(fiber.getRef(References.CurrentLogAnnotations)).map(
        ([name, value]) =>
          `  ${paint(`${escapeText(name)}:`, BOLD)} ${below(textOf(value)).join("\n").trimStart()}`
      )
    ].join("\n")
  })
}

/** One line of JSON: escapes of JSON for whatever JSON itself would let through. */
const formatJson = Logger.map(Logger.formatJson, escapeText)

/** Structured logs in the chosen form, from the chosen level on. */
export const LoggingLayer = (settings: Pick<ServiceSettings, "logFormat" | "logLevel">) =>
  Layer.mergeAll(
    Logger.layer([
      Logger.withConsoleLog(
        settings.logFormat === "json" ? formatJson : formatPretty(process.stdout.isTTY === true)
      )
    ]),
    Layer.succeed(References.MinimumLogLevel, levels[settings.logLevel])
  )

/** Commands print their answer on standard output; what is logged meanwhile goes to standard error. */
export const CommandLogging = Layer.mergeAll(
  Logger.layer([Logger.withConsoleError(Logger.map(Logger.formatSimple, escapeText))]),
  Layer.succeed(References.MinimumLogLevel, "Warn")
)
