/** The record of the end of a run, and its lines in the console. */
import { Clock, Effect } from "effect"
import { CRASH_LINES, crashLines } from "../../domain/CrashRecord.ts"
import type { ConsoleLog } from "../console/ConsoleLog.ts"
import { appendConsoleLine } from "../console/consoleFiles.ts"
import type { ProcessExit } from "../runtime/exitReason.ts"
import type { ServerFile } from "../state/ServerFile.ts"
import {
  type Ending,
  type EndOptions,
  endLine,
  isCrash,
  processEnded,
  restartLimitReason
} from "./processEnded.ts"

export interface RecordEndOptions {
  readonly console: ConsoleLog
  readonly file: ServerFile
  readonly folder: string
}

export const makeRecordEnd = ({ console, file, folder }: RecordEndOptions) => {
  const writeLine = (text: string) =>
    Effect.catch(appendConsoleLine(folder, text), (error) => Effect.logWarning(error.message))

  /** The end of the console, for the record of a crash. */
  const lastLines = console.page({ page: 1, per_page: CRASH_LINES }).pipe(
    Effect.map(({ items }) => crashLines(items)),
    Effect.catch((error) => Effect.as(Effect.logWarning(error.message), []))
  )

  const ended = Effect.fnUntraced(function* (exit: ProcessExit, options: Omit<EndOptions, "lines"> = {}) {
    const { mayRestart = true } = options
    const now = yield* Clock.currentTimeMillis
    const why = mayRestart ? restartLimitReason(file.get(), exit, now) : undefined
    const lines = isCrash(file.get(), exit) ? yield* lastLines : []
    yield* file.update((state) => processEnded(state, exit, now, { ...options, lines }))
    if (why === undefined) return
    yield* Effect.logWarning(`the server is not started again: ${why}`)
    yield* writeLine(`not started again: ${why}. Correct the cause, then start it`)
  })

  /** Says in the console how the process has ended. */
  const writeEnd = Effect.fnUntraced(function* (exit: ProcessExit, ending: Ending) {
    const line = endLine(file.get(), exit, ending)
    if (line === undefined) return
    if (ending.silent) yield* Effect.logWarning(line)
    yield* writeLine(line)
  })

  return { ended, writeEnd, writeLine }
}
