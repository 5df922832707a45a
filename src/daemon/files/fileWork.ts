import { copyFile } from "node:fs/promises"
import { join } from "node:path"
import { Effect } from "effect"
import type { Installed, Installer } from "../install/Installer.ts"
import { InstallFailed } from "../install/InstallFailed.ts"
import type { ServerState } from "../instances/ServerFile.ts"
import { io, orMissing } from "./fsio.ts"
import { type FileSources, makeInstance, overlayInstance } from "./InstanceFiles.ts"

export const installLogPath = (folder: string): string => join(folder, "install.log")

/**
 * Does the work on the files that the state asks for: base, then the instance folder. A reinstall of a saved server
 * keeps its user's files and puts the base's over them; everything else makes the folder anew.
 */
export const doFileWork = Effect.fnUntraced(function* (
  folder: string,
  state: ServerState,
  installer: Installer["Service"],
  sources: FileSources
): Effect.fn.Return<Installed, InstallFailed> {
  const { spec, work } = state
  const copyLog = io("keep the install log", () =>
    copyFile(installer.logPath(spec), installLogPath(folder))
  ).pipe(
    orMissing(undefined),
    Effect.catch((error) => Effect.logWarning(error.message))
  )
  const installed = yield* installer
    .install(spec, { anew: work === "reinstall" })
    .pipe(Effect.ensuring(copyLog))
  const overlay = work === "reinstall" && spec.definition.save
  const make = overlay ? overlayInstance : makeInstance
  yield* make(folder, installed.folder, spec, sources).pipe(
    Effect.mapError((error) => new InstallFailed({ reason: error.message }))
  )
  return installed
})
