import { Layer, Logger, References } from "effect"
import type { ServiceSettings } from "../config/service.ts"

const levels = { debug: "Debug", info: "Info", warn: "Warn", error: "Error" } as const

/** Structured logs in the chosen form, from the chosen level on. */
export const LoggingLayer = (settings: Pick<ServiceSettings, "logFormat" | "logLevel">) =>
  Layer.mergeAll(
    Logger.layer([
      settings.logFormat === "json" ? Logger.consoleJson : Logger.consolePretty({ colors: "auto" })
    ]),
    Layer.succeed(References.MinimumLogLevel, levels[settings.logLevel])
  )

/** Commands print their answer on standard output; what is logged meanwhile goes to standard error. */
export const CommandLogging = Layer.mergeAll(
  Logger.layer([Logger.withConsoleError(Logger.formatSimple)]),
  Layer.succeed(References.MinimumLogLevel, "Warn")
)
