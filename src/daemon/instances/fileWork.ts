import { join } from "node:path"
import { Effect, Exit, type Scope, type Semaphore } from "effect"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { atScopeEnd } from "../../shared/work/inScope.ts"
import { removeTree } from "../disk/fsio.ts"
import { InstallFailed, installFailed, textOfFailure } from "../files/InstallFailed.ts"
import { type FileSources, type InstanceFiles, instanceFolder } from "../files/InstanceFiles.ts"
import { fetchFiles } from "../files/importFiles.ts"
import { missingVolumes } from "../files/sources.ts"
import type { Installed, Installer } from "../install/Installer.ts"
import { type OnSteps, StepLog } from "../install/StepLog.ts"
import { PRIVATE_NAMES } from "../runtime/isolatedStart.ts"
import type { LaunchFailed, Runtime, RunUser } from "../runtime/Runtime.ts"
import type { ServerState } from "../state/ServerFile.ts"
import { appendInstallLog, takeInstallLog, warnInInstallLog } from "./installLog.ts"

export interface FileWorkParts {
  readonly installer: Installer["Service"]
  readonly files: InstanceFiles["Service"]
  readonly runtime: Runtime["Service"]
  readonly sources: FileSources
  /** Bounds the servers whose files are made at a time: with all at once, each would take as long as all of them. */
  readonly turns: Semaphore.Semaphore
  /** The user that the server would run as now, who becomes the owner of its files. */
  readonly user: Effect.Effect<RunUser | undefined, LaunchFailed>
  readonly onSteps: OnSteps
}

/** Warns of volumes without a source, which start empty; the operator may add the source later. */
const warnOfMissing = Effect.fnUntraced(function* (
  folder: string,
  { definition }: ServerSpec,
  sources: FileSources
) {
  const missing = yield* missingVolumes(definition.volumes, sources)
  const warnings = missing.map(
    ({ source, target }) =>
      `state.volumes: source ${source} is not on node ${sources.node_id}: ${target} starts empty`
  )
  yield* warnInInstallLog(folder, warnings)
})

const runFileWork = Effect.fnUntraced(function* (
  folder: string,
  state: ServerState,
  { files, installer, onSteps, runtime, sources, turns, user: ownUser }: FileWorkParts
): Effect.fn.Return<Installed, InstallFailed, Scope.Scope> {
  const { work } = state
  const spec = state.next ?? state.spec
  const installed = yield* installer.install(spec, { force: work === "reinstall", onSteps }).pipe(
    Effect.onExit((exit) =>
      takeInstallLog(installer.logPath(spec), folder, {
        isComplete: Exit.isSuccess(exit),
        isCached: Exit.isSuccess(exit) && exit.value.steps === undefined
      })
    )
  )
  const steps = new StepLog(installed.steps)
  yield* atScopeEnd((exit) => steps.endSpan(exit))
  // The image of an old base may have been removed. Unknown while the engine is down.
  const kind = yield* Effect.option(runtime.kindFor(spec.definition))
  if (kind._tag === "Some") {
    yield* steps
      .watched(runtime.ensureImage(spec.definition, steps.pull), onSteps)
      .pipe(Effect.mapError((error) => installFailed(error)))
  }
  const keepsFiles = (work === "reinstall" && spec.definition.save) || work === "upgrade"
  // Unknown while the engine is down: the next start sets the owner.
  const user =
    kind._tag === "Some" ? yield* Effect.mapError(ownUser, (error) => installFailed(error)) : undefined
  if (!keepsFiles)
    yield* Effect.mapError(warnOfMissing(folder, spec, sources), (error) => installFailed(error))
  const placed =
    work === "upgrade"
      ? files.upgrade(folder, installed, { from: state.spec, to: spec }, user)
      : keepsFiles
        ? files.renew(folder, installed, spec, user)
        : files.make(folder, installed, spec, user)
  const withoutLog = Effect.mapError(removeTree(join(folder, PRIVATE_NAMES.log)), (error) =>
    installFailed(error)
  )
  yield* steps
    .begin("instance")
    .pipe(
      Effect.andThen(Effect.suspend(() => onSteps(steps.now))),
      Effect.andThen(Effect.mapError(placed, (error) => installFailed(error))),
      Effect.andThen(keepsFiles ? Effect.void : withoutLog),
      turns.withPermit
    )
  if (work === "install" && spec.arrival !== undefined && sources.arrivals !== undefined) {
    const paths = yield* Effect.mapError(files.paths(spec), (error) => installFailed(error))
    yield* fetchFiles(instanceFolder(folder), spec, paths, sources.arrivals, user)
  }
  // The earlier base may be unused now.
  if (work !== "install") yield* installer.collect
  yield* steps.finish
  return { ...installed, steps: steps.now }
}, Effect.scoped)

/**
 * Does the pending work on the files: the base, then the instance folder. A reinstallation of a saved server keeps its
 * own files and replaces those of the base; any other work recreates the folder. A failure is the last line of the
 * server's install log.
 */
export const doFileWork = (folder: string, state: ServerState, parts: FileWorkParts) =>
  runFileWork(folder, state, parts).pipe(
    Effect.catchTag("InstallFailed", (error) => {
      const arriving = state.work === "install" && state.spec.arrival !== undefined
      const reason = textOfFailure(error, { ...parts.sources, arriving })
      const { exit_code } = error
      return Effect.andThen(
        appendInstallLog(folder, `\n[${reason}]\n`),
        new InstallFailed({ reason, ...(exit_code === undefined ? {} : { exit_code }) })
      )
    })
  )
