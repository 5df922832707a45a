import { appendFile, copyFile } from "node:fs/promises"
import { join } from "node:path"
import { Effect, type Scope } from "effect"
import { io, orMissing } from "../disk/fsio.ts"
import { failureText, InstallFailed, installFailed } from "../files/InstallFailed.ts"
import { type FileSources, type InstanceFiles, instanceFolder } from "../files/InstanceFiles.ts"
import { fetchFiles } from "../files/importFiles.ts"
import { missingVolumes } from "../files/sources.ts"
import type { Installed, Installer } from "../install/Installer.ts"
import type { LaunchFailed, Runtime, RunUser } from "../runtime/Runtime.ts"
import type { ServerState } from "../state/ServerFile.ts"

export const installLogPath = (folder: string): string => join(folder, "install.log")

export interface FileWorkParts {
  readonly installer: Installer["Service"]
  readonly files: InstanceFiles["Service"]
  readonly runtime: Runtime["Service"]
  readonly sources: FileSources
  /** The user that the server would run as now, and that is to own its files. */
  readonly user: Effect.Effect<RunUser | undefined, LaunchFailed>
}

/** Adds to the install log of a server what is not in that of its software. */
const say = (folder: string, text: string) =>
  io("write the install log", () => appendFile(installLogPath(folder), text, { mode: 0o600 })).pipe(
    Effect.catch((error) => Effect.logWarning(error.message))
  )

/** Volumes without a source are no failure, and no secret either: the world may just not have been put there yet. */
const tellOfMissing = Effect.fnUntraced(function* (folder: string, state: ServerState, sources: FileSources) {
  const { definition, id } = state.spec
  for (const { source, target } of yield* missingVolumes(definition.volumes, sources)) {
    const line = `state.volumes: source ${source} is not on node ${sources.node_id}: ${target} starts empty`
    yield* Effect.logWarning(`${id}: ${line}`)
    yield* say(folder, `[WARN ${line}]\n`)
  }
})

const carryOut = Effect.fnUntraced(function* (
  folder: string,
  state: ServerState,
  { files, installer, runtime, sources, user: ownUser }: FileWorkParts
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
  // A base may have been there for long, and the image have gone since. Without its engine nobody knows.
  const there = yield* Effect.option(runtime.kindFor(spec.definition))
  if (there._tag === "Some") {
    yield* Effect.mapError(runtime.ensureImage(spec.definition), (error) => installFailed(error))
  }
  const keeps = work === "reinstall" && spec.definition.save
  // Without its engine nobody knows: the start gives the files away then.
  const user =
    there._tag === "Some" ? yield* Effect.mapError(ownUser, (error) => installFailed(error)) : undefined
  if (!keeps) yield* Effect.mapError(tellOfMissing(folder, state, sources), (error) => installFailed(error))
  yield* (
    keeps ? files.renew(folder, installed, spec, user) : files.make(folder, installed, spec, user)
  ).pipe(Effect.mapError((error) => installFailed(error)))
  if (work === "install" && spec.arrival !== undefined && sources.arrivals !== undefined) {
    yield* fetchFiles(instanceFolder(folder), spec, sources.arrivals, user)
  }
  // Another base than before, perhaps: nobody may need that any more.
  if (work !== "install") yield* installer.collect
  return installed
}, Effect.scoped)

/**
 * Does the work on the files that the state asks for: base, then the instance folder. A reinstall of a saved server
 * keeps its user's files and puts the base's over them; everything else makes the folder anew. A failure is the last
 * line of the server's install log, and its reason says it all.
 */
export const doFileWork = (folder: string, state: ServerState, parts: FileWorkParts) =>
  carryOut(folder, state, parts).pipe(
    Effect.catchTag("InstallFailed", (error) => {
      const arriving = state.work === "install" && state.spec.arrival !== undefined
      const reason = failureText(error, { ...parts.sources, arriving })
      const { exit_code } = error
      return Effect.andThen(
        say(folder, `\n[${reason}]\n`),
        new InstallFailed({ reason, ...(exit_code === undefined ? {} : { exit_code }) })
      )
    })
  )
