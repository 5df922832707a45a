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

/** Returns the lines of a text below an entry: each line is escaped, and none looks like the start of an entry. */
const below = (text: string): ReadonlyArray<string> =>
  text.split("\n").map((line) => `  ${escapeText(line.trimEnd())}`)

const textOf = (value: unknown): string => {
  const shown = Redactable.redact(value)
  return typeof shown === "string" ? escapeText(shown) : inspect(shown, { depth: 4 })
}

/** Returns the value of a field on the line of its entry; a text with spaces is quoted. */
const fieldOf = (value: unknown): string => {
  const text = textOf(value).replace(/\s+/g, " ")
  return typeof value === "string" && /^$|[\s"=]/.test(text) ? `"${text.replaceAll('"', '\\"')}"` : text
}

/**
 * Formats entries for people: one line with the fields, then causes and other values, indented. Names and texts from
 * outside are escaped, so that they cannot end a line, start an entry or control a terminal.
 */
const formatPretty = (colored: boolean) => {
  const paint = (text: string, ...codes: ReadonlyArray<string>) =>
    colored ? `${codes.map((code) => `\u001b[${code}m`).join("")}${text}\u001b[0m` : text
  return Logger.make<unknown, string>(({ cause, date, fiber, logLevel, message }) => {
    const spans = fiber
      .getRef(References.CurrentLogSpans)
      .map(([label, since]) => ` ${escapeText(label)}=${date.getTime() - since}ms`)
    const fields = Object.entries(fiber.getRef(References.CurrentLogAnnotations)).map(
      ([name, value]) => ` ${paint(`${escapeText(name)}=`, BOLD)}${fieldOf(value)}`
    )
    const [first, ...others] = Array.ensure(message)
    const isText = typeof first === "string"
    const head = `[${timeOf(date)}] ${paint(logLevel.toUpperCase(), colors[logLevel] ?? "90")} (#${fiber.id})`
    return [
      `${head}${spans.join("")}:${isText ? ` ${paint(escapeText(first), BOLD, CYAN)}` : ""}${fields.join("")}`,
      ...(cause.reasons.length > 0 ? below(Cause.pretty(cause)) : []),
      ...(isText ? others : Array.ensure(message)).flatMap((value) => below(textOf(value)))
    ].join("\n")
  })
}

/** One line of JSON, with escapes for the characters that JSON allows and a terminal interprets. */
const formatJson = Logger.map(Logger.formatJson, escapeText)

/** Writes structured logs in the set format, from the set level on. */
export const LoggingLayer = (settings: Pick<ServiceSettings, "logFormat" | "logLevel">) =>
  Layer.mergeAll(
    Logger.layer([
      Logger.withConsoleLog(
        settings.logFormat === "json" ? formatJson : formatPretty(process.stdout.isTTY === true)
      )
    ]),
    Layer.succeed(References.MinimumLogLevel, levels[settings.logLevel])
  )

/** Writes logs of a command to standard error; standard output has its result. */
export const CommandLogging = Layer.mergeAll(
  Logger.layer([Logger.withConsoleError(Logger.map(Logger.formatSimple, escapeText))]),
  Layer.succeed(References.MinimumLogLevel, "Warn")
)
