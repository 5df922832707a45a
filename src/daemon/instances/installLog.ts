/** The install log of a server: the log of its software's installation, and lines about this server. */

import { appendFile, readFile } from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { io, orMissing } from "../disk/fsio.ts"

export const installLogPath = (folder: string): string => join(folder, "install.log")

/** Appends to the install log of the server in `folder`. */
export const appendInstallLog = (folder: string, text: string) =>
  io("write the install log", () => appendFile(installLogPath(folder), text, { mode: 0o600 })).pipe(
    Effect.catch((error) => Effect.logWarning(error.message))
  )

/** Adds warnings about a server to its install log and to the daemon's log, each once per installation. */
export const warnInInstallLog = Effect.fnUntraced(function* (
  folder: string,
  warnings: ReadonlyArray<string>
) {
  if (warnings.length === 0) return
  const known = yield* io("read the install log", () => readFile(installLogPath(folder), "utf8")).pipe(
    orMissing(""),
    Effect.catch((error) => Effect.as(Effect.logWarning(error.message), ""))
  )
  const fresh = [...new Set(warnings)].filter((warning) => !known.includes(`[WARN ${warning}]\n`))
  for (const warning of fresh) yield* Effect.logWarning(warning)
  yield* appendInstallLog(folder, fresh.map((warning) => `[WARN ${warning}]\n`).join(""))
})
