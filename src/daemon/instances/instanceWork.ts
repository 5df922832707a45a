import { join } from "node:path"
import { isDeepStrictEqual } from "node:util"
import { Effect, Exit, Fiber, type Scope } from "effect"
import {
  beginStep,
  currentStep,
  finishSteps,
  type InstallSteps,
  mergeSteps,
  withoutProgress
} from "../../contract/domain/InstallState.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import { atScopeEnd } from "../../shared/work/inScope.ts"
import { type IoError, orWarn, removeTree } from "../disk/fsio.ts"
import { InstallFailed, installFailed, textOfFailure } from "../files/InstallFailed.ts"
import { fetchFiles } from "../files/importFiles.ts"
import { instanceFolder } from "../files/sharedFiles.ts"
import { type FileSources, missingVolumes } from "../files/sources.ts"
import { WRITES } from "../files/swapFiles.ts"
import { discardUploads } from "../files/uploadFiles.ts"
import type { Installed } from "../install/Installer.ts"
import { appendInstallLog, takeInstallLog, warnInInstallLog } from "../install/installLog.ts"
import { type OnSteps, StepLog } from "../install/StepLog.ts"
import { PRIVATE_NAMES } from "../runtime/isolatedStart.ts"
import type { LaunchFailed } from "../runtime/Runtime.ts"
import {
  type InstanceState,
  withoutTurn,
  withReport,
  withStatusReport,
  withTaken
} from "../state/InstanceState.ts"
import { serverUser } from "./serverUser.ts"
import type { Serving, WorkExit } from "./serving.ts"

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

const runFileWork = Effect.fnUntraced(
  function* (
    { file, files, folder, installer, runtime, sources, turns }: Serving,
    state: InstanceState,
    onSteps: OnSteps
  ): Effect.fn.Return<Installed, InstallFailed | IoError | LaunchFailed, Scope.Scope> {
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
      yield* steps.watched(runtime.ensureImage(spec.definition, undefined, steps.pull), onSteps)
    }
    const keepsFiles = (work === "reinstall" && spec.definition.save) || work === "upgrade"
    // Unknown while the engine is down: the next start sets the owner.
    const user = kind._tag === "Some" ? yield* serverUser(file, runtime) : undefined
    if (!keepsFiles) yield* warnOfMissing(folder, spec, sources)
    const placed =
      work === "upgrade"
        ? files.upgrade(folder, installed, { from: state.spec, to: spec }, user)
        : keepsFiles
          ? files.renew(folder, installed, spec, user)
          : files.make(folder, installed, spec, user)
    yield* steps
      .begin("instance")
      .pipe(
        Effect.andThen(Effect.suspend(() => onSteps(steps.now))),
        Effect.andThen(placed),
        Effect.andThen(keepsFiles ? Effect.void : removeTree(join(folder, PRIVATE_NAMES.log))),
        turns.withPermit
      )
    if (work === "install" && spec.arrival !== undefined && sources.arrivals !== undefined) {
      const paths = yield* files.paths(spec)
      yield* fetchFiles(instanceFolder(folder), spec, paths, sources.arrivals, user)
    }
    // The earlier base may be unused now.
    if (work !== "install") yield* installer.collect
    yield* steps.finish
    return { ...installed, steps: steps.now }
  },
  Effect.scoped,
  Effect.mapError((error) => (error._tag === "InstallFailed" ? error : installFailed(error)))
)

/** Makes the base, then the instance folder. Only a reinstallation of a saved server keeps its own files. */
const doFileWork = (options: Serving, state: InstanceState, onSteps: OnSteps) =>
  runFileWork(options, state, onSteps).pipe(
    Effect.catchTag("InstallFailed", (error) => {
      const arriving = state.work === "install" && state.spec.arrival !== undefined
      const reason = textOfFailure(error, { ...options.sources, arriving })
      const { exit_code } = error
      return Effect.andThen(
        appendInstallLog(options.folder, `\n[${reason}]\n`),
        new InstallFailed({ reason, ...(exit_code === undefined ? {} : { exit_code }) })
      )
    })
  )

/** Returns the state of an installation that continues: its unfinished steps are repeated. */
const resumed = (state: InstanceState): InstanceState => {
  const { steps } = state.install
  if (steps === undefined) return state
  const kept = steps.filter(({ finished_at }) => finished_at !== undefined)
  return { ...state, install: { ...state.install, steps: kept } }
}

const beginning = (state: InstanceState, started_at: string): InstanceState =>
  state.work === "reset"
    ? state.status === "installing"
      ? state
      : withStatusReport(state, "installing")
    : state.install.phase === "installing"
      ? resumed(state)
      : withReport(state, { type: "install-status", install: { phase: "installing", started_at } })

/** Returns the state with further steps of its installation, reported if they have changed. */
const withSteps = (state: InstanceState, further: InstallSteps): InstanceState => {
  const { install } = state
  const steps = mergeSteps(install.steps ?? [], further)
  return install.phase !== "installing" || isDeepStrictEqual(install.steps ?? [], steps)
    ? state
    : withReport(state, { type: "install-status", install: { ...install, steps } })
}

const workEnded = (
  state: InstanceState,
  exit: WorkExit,
  { finished_at, target }: { readonly finished_at: string; readonly target: ServerSpec | undefined }
): InstanceState => {
  const isTaken = Exit.isSuccess(exit) && target !== undefined
  const ended: InstanceState = { ...state, work: "none" }
  const done = isTaken ? withTaken(ended, target) : ended
  if (Exit.isSuccess(exit) && state.work === "reset") return withStatusReport(done, "offline", true)
  const failure = failureOf(exit)
  const { exit_code } = Exit.isSuccess(exit) ? exit.value : (failure ?? {})
  const known = mergeSteps(state.install.steps ?? [], Exit.isSuccess(exit) ? (exit.value.steps ?? []) : [])
  // The last step of a failed installation is the one that failed; it may not have begun.
  const isOutside = Exit.isFailure(exit) && currentStep(known) === undefined
  const steps = isOutside ? beginStep(known, "instance", finished_at) : known
  const reported = withReport(Exit.isSuccess(exit) ? done : { ...withoutTurn(done), start_again: false }, {
    type: "install-status",
    install: {
      phase: Exit.isSuccess(exit) ? "ready" : "failed",
      ...(exit_code === undefined ? {} : { exit_code }),
      started_at: state.install.started_at ?? finished_at,
      finished_at,
      steps: finishSteps(steps, finished_at),
      ...(Exit.isSuccess(exit) ? {} : { failure_reason: failure?.reason ?? "internal error of the node" })
    }
  })
  // Transient: the server did not run, so an ephemeral server is not deleted.
  return reported.status === "offline" ? reported : withStatusReport(reported, "offline", true)
}

const failureOf = (exit: WorkExit): InstallFailed | undefined =>
  Exit.isFailure(exit) ? exit.cause.reasons.find((reason) => reason._tag === "Fail")?.error : undefined

const onStepsOf = ({ file, progress }: Serving): OnSteps =>
  Effect.fnUntraced(function* (steps: InstallSteps) {
    const change = (state: InstanceState) => withSteps(state, withoutProgress(steps))
    const share = currentStep(steps)?.progress
    if (share === undefined) file.updateSoon(change)
    // The progress is that of the step that the state has.
    else yield* file.update(change)
    progress.set(share)
  })

/** Begins or continues the work that the state names, unless it is in progress. */
export const beginWork = Effect.fnUntraced(function* (
  it: Serving,
  onDone: (exit: WorkExit) => Effect.Effect<void>
) {
  if (it.work !== undefined) return
  const { accesses, file, scope } = it
  yield* accesses.interrupt
  const state = file.get()
  // Records of unfinished writes are about the earlier files: later accesses must not undo them in the new ones.
  if (state.work === "reset") yield* orWarn(removeTree(join(it.folder, WRITES)))
  if (state.work === "reset" || state.work === "reinstall")
    yield* discardUploads(it.files, it.folder, state.spec)
  const started_at = yield* nowText
  const begun = (before: InstanceState) => beginning(before, started_at)
  if (state.work === "reset") yield* file.update(begun)
  else file.updateSoon(begun)
  const fiber = yield* doFileWork(it, state, onStepsOf(it)).pipe(
    Effect.exit,
    Effect.flatMap(onDone),
    Effect.forkIn(scope)
  )
  it.work = { fiber, target: state.next }
})

/** Records the end of the work. */
export const workDone = Effect.fnUntraced(function* (it: Serving, exit: WorkExit) {
  const { file, files, folder, progress } = it
  const target = it.work?.target
  it.work = undefined
  progress.set(undefined)
  const failure = failureOf(exit)
  if (failure !== undefined) {
    const what = file.get().work === "reset" ? "reset" : "installed"
    yield* Effect.logWarning(`the server cannot be ${what}: ${failure.reason}`)
  } else if (Exit.isFailure(exit)) {
    yield* Effect.logError("work on the files failed", exit.cause)
  }
  const finished_at = yield* nowText
  const { spec } = yield* file.update((state) => workEnded(state, exit, { finished_at, target }))
  if (target !== undefined) files.register(folder, spec)
})

export const interruptWork = ({ work }: Serving) =>
  work === undefined ? Effect.void : Fiber.interrupt(work.fiber)
