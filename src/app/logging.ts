import { inspect } from "node:util"
import {
  Array,
  Cause,
  Console,
  Context,
  Effect,
  Formatter,
  Layer,
  Logger,
  type LogLevel,
  Redactable,
  References
} from "effect"
import { escapeText } from "../contract/domain/NodeText.ts"
import type { ServiceSettings } from "../shared/config/service.ts"

const LINES = 1000

/** Characters of a line that stay: with {@link LINES}, the memory is bounded. */
const LONGEST = 4096

/** The last lines of the log of this process, for `GET /api/system/log`. */
export class RecentLog extends Context.Service<
  RecentLog,
  {
    /** Adds a line; of more than 1,000 lines, the oldest is dropped. */
    readonly add: (line: string) => void
    /** The last 1,000 lines, oldest first, each cut to 4,096 characters. */
    readonly lines: Effect.Effect<ReadonlyArray<string>>
  }
>()("muster/app/RecentLog") {
  static readonly layer = Layer.sync(RecentLog, () => {
    const lines: Array<string> = []
    return RecentLog.of({
      add: (line) => {
        lines.push(line.length > LONGEST ? `${line.slice(0, LONGEST - 1)}…` : line)
        if (lines.length > LINES) lines.shift()
      },
      lines: Effect.sync(() => [...lines])
    })
  })
}

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
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-")
  const clock = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":")
  return `${day} ${clock}.${String(date.getMilliseconds()).padStart(3, "0")}`
}

const joined = (text: string): string =>
  text
    .split("\n")
    .map((line) => escapeText(line.trim()))
    .filter((line) => line !== "")
    .join(" | ")

const textOf = (value: unknown): string => {
  const shown = Redactable.redact(value)
  return typeof shown === "string"
    ? escapeText(shown)
    : joined(inspect(shown, { depth: 4, breakLength: Number.POSITIVE_INFINITY }))
}

/** Returns the value of a field on the line of its entry; a text with spaces is quoted. */
const fieldOf = (value: unknown): string => {
  const text = textOf(value).replace(/\s+/g, " ")
  return typeof value === "string" && /^$|[\s"=]/.test(text) ? `"${text.replaceAll('"', '\\"')}"` : text
}

/**
 * Formats an entry for people on one line. Texts from outside are escaped: they end no line and control no terminal.
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
    const details = [
      ...(isText ? others : Array.ensure(message)).map(textOf),
      ...(cause.reasons.length > 0 ? [joined(Cause.pretty(cause))] : [])
    ].map((text) => ` | ${text}`)
    return `${head}${spans.join("")}:${isText ? ` ${paint(escapeText(first), BOLD, CYAN)}` : ""}${fields.join("")}${details.join("")}`
  })
}

/** The fields that every entry has; an annotation of such a name gets an underscore. */
const ownFields = new Set(["timestamp", "level", "message", "details", "cause", "fiber"])

/** Formats an entry as one line of flat JSON, with characters escaped that a terminal interprets. */
const formatJson = Logger.map(
  Logger.formatStructured,
  ({ annotations, cause, fiberId, level, message, spans, timestamp }) => {
    const [first, ...others] = Array.ensure(message)
    const isText = typeof first === "string"
    const details = isText ? others : Array.ensure(message)
    const fields = Object.entries({ ...spans, ...annotations }).map(
      ([name, value]) => [ownFields.has(name) ? `${name}_` : name, value] as const
    )
    return escapeText(
      Formatter.formatJson({
        timestamp,
        level,
        message: isText ? first : "",
        ...Object.fromEntries(fields),
        ...(details.length === 0 ? {} : { details }),
        ...(cause === undefined ? {} : { cause }),
        fiber: fiberId
      })
    )
  }
)

/** Writes lines to standard output. Lines without a pause share a blocking system call; none is held longer. */
const makeOutput = Effect.gen(function* () {
  const console = yield* Console.Console
  let waiting: Array<string> = []
  const flush = () => {
    const lines = waiting
    waiting = []
    if (lines.length > 0) console.log(lines.join("\n"))
  }
  yield* Effect.acquireRelease(
    Effect.sync(() => process.on("exit", flush)),
    () =>
      Effect.sync(() => {
        process.off("exit", flush)
        flush()
      })
  )
  return (line: string) => {
    if (waiting.length === 0) process.nextTick(flush)
    waiting.push(line)
  }
})

/** Writes structured logs in the set format and level; `recent` also receives each line, without colours. */
export const LoggingLayer = (
  settings: Pick<ServiceSettings, "logFormat" | "logLevel">,
  recent?: (line: string) => void
) =>
  Layer.unwrap(
    Effect.map(makeOutput, (write) => {
      const isColored = process.stdout.isTTY === true
      const format = (colored: boolean) =>
        settings.logFormat === "json" ? formatJson : formatPretty(colored)
      const plain = format(false)
      const both = (line: string) => {
        write(line)
        recent?.(line)
      }
      return Layer.mergeAll(
        Logger.layer(
          isColored
            ? [Logger.map(format(true), write), ...(recent === undefined ? [] : [Logger.map(plain, recent)])]
            : [Logger.map(plain, both)]
        ),
        Layer.succeed(References.MinimumLogLevel, levels[settings.logLevel])
      )
    })
  )

/** Writes logs of a command to standard error; standard output has its result. */
export const CommandLogging = Layer.mergeAll(
  Logger.layer([Logger.withConsoleError(Logger.map(Logger.formatSimple, escapeText))]),
  Layer.succeed(References.MinimumLogLevel, "Warn")
)
