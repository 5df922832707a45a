import { copyFile } from "node:fs/promises"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import type { Installed, Installer } from "../install/Installer.ts"
import { InstallFailed } from "../install/InstallFailed.ts"
import type { ServerState } from "../instances/ServerFile.ts"
import type { Runtime } from "../runtime/Runtime.ts"
import { fetchFiles } from "./arrival.ts"
import { io, orMissing } from "./fsio.ts"
import { type FileSources, type InstanceFiles, instanceFolder } from "./InstanceFiles.ts"

export const installLogPath = (folder: string): string => join(folder, "install.log")

export interface FileWorkParts {
  readonly installer: Installer["Service"]
  readonly files: InstanceFiles["Service"]
  readonly runtime: Runtime["Service"]
  readonly arrivals: FileSources["arrivals"]
}

/**
 * Does the work on the files that the state asks for: base, then the instance folder. A reinstall of a saved server
 * keeps its user's files and puts the base's over them; everything else makes the folder anew.
 */
export const doFileWork = Effect.fnUntraced(function* (
  folder: string,
  state: ServerState,
  { arrivals, files, installer, runtime }: FileWorkParts
): Effect.fn.Return<Installed, InstallFailed, Scope.Scope> {
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
  const keeps = work === "reinstall" && spec.definition.save
  // Without its engine nobody knows: the start gives the files away then.
  const user = yield* Effect.orElseSucceed(runtime.userFor(spec.definition), () => undefined)
  yield* (
    keeps ? files.renew(folder, installed, spec, user) : files.make(folder, installed, spec, user)
  ).pipe(Effect.mapError((error) => new InstallFailed({ reason: error.message })))
  if (work === "install" && spec.arrival !== undefined && arrivals !== undefined) {
    yield* fetchFiles(instanceFolder(folder), spec, arrivals)
  }
  // Another base than before, perhaps: nobody may need that any more.
  if (work !== "install") yield* installer.collect
  return installed
}, Effect.scoped)
