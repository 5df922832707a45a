/** The install log of a server: the log of its software's installation, and lines about this server. */

import * as fs from "node:fs"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import { io, ioSync, orMissing, orWarn } from "../disk/fsio.ts"

export const installLogPath = (folder: string): string => join(folder, "install.log")

/** Links the log of the software's installation, which {@link appendInstallLog} copies before it writes. */
export const takeInstallLog = (
  shared: string,
  folder: string,
  { isCached = false, isComplete }: { readonly isCached?: boolean; readonly isComplete: boolean }
) =>
  ioSync("take the install log", () => {
    const own = installLogPath(folder)
    if (fs.existsSync(own)) fs.unlinkSync(own)
    const stats = fs.statSync(shared, { throwIfNoEntry: false })
    if (stats === undefined) return
    if (isCached && stats.size > 0) {
      const line = `[installed from the cache of ${stats.mtime.toISOString()}: the script did not run again]\n`
      return fs.writeFileSync(own, line, { mode: 0o600 })
    }
    // The installation may go on for other servers, whose log it is then.
    if (!isComplete) return fs.copyFileSync(shared, own)
    try {
      fs.linkSync(shared, own)
    } catch {
      fs.copyFileSync(shared, own) // on another disk, or too many names
    }
  }).pipe(orWarn)

export const appendInstallLog = (folder: string, text: string) =>
  ioSync("write the install log", () => {
    const own = installLogPath(folder)
    if ((fs.lstatSync(own, { throwIfNoEntry: false })?.nlink ?? 1) > 1) {
      fs.copyFileSync(own, `${own}.own`)
      fs.renameSync(`${own}.own`, own)
    }
    fs.appendFileSync(own, text, { mode: 0o600 })
  }).pipe(orWarn)

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
