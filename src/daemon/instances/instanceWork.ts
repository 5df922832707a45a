import { isDeepStrictEqual } from "node:util"
import { Effect, Exit, Fiber, type Scope, type Semaphore } from "effect"
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
import type { InstallFailed } from "../files/InstallFailed.ts"
import type { FileSources, InstanceFiles } from "../files/InstanceFiles.ts"
import type { Installed, Installer } from "../install/Installer.ts"
import type { Runtime } from "../runtime/Runtime.ts"
import {
  type FileWork,
  type ServerFile,
  type ServerState,
  withoutTurn,
  withReport,
  withTaken
} from "../state/ServerFile.ts"
import type { LiveProgress } from "../uplink/ReportOutbox.ts"
import { doFileWork } from "./fileWork.ts"
import { serverUser } from "./serverUser.ts"

export interface WorkOptions {
  readonly file: ServerFile
  readonly folder: string
  readonly installer: Installer["Service"]
  readonly files: InstanceFiles["Service"]
  readonly runtime: Runtime["Service"]
  readonly sources: FileSources
  readonly turns: Semaphore.Semaphore
  readonly scope: Scope.Scope
  readonly progress: LiveProgress
  /** Called by the fiber of the work when it ends. */
  readonly onDone: (exit: WorkExit) => Effect.Effect<void>
}

export type WorkExit = Exit.Exit<Installed, InstallFailed>

/** Returns the state of an installation that continues: its unfinished steps are repeated. */
const resumed = (state: ServerState): ServerState => {
  const { steps } = state.install
  if (steps === undefined) return state
  const kept = steps.filter(({ finished_at }) => finished_at !== undefined)
  return { ...state, install: { ...state.install, steps: kept } }
}

/** Returns the state whose pending work begins. */
const beginning = (state: ServerState, started_at: string): ServerState =>
  state.work === "reset"
    ? state.status === "installing"
      ? state
      : withReport(state, { type: "status", status: "installing", transient: false })
    : state.install.phase === "installing"
      ? resumed(state)
      : withReport(state, { type: "install-status", install: { phase: "installing", started_at } })

/** Returns the state with further steps of its installation, reported if they have changed. */
const withSteps = (state: ServerState, further: InstallSteps): ServerState => {
  const { install } = state
  const steps = mergeSteps(install.steps ?? [], further)
  return install.phase !== "installing" || isDeepStrictEqual(install.steps ?? [], steps)
    ? state
    : withReport(state, { type: "install-status", install: { ...install, steps } })
}

/** Returns the state after the work, with its reports. */
const workEnded = (
  state: ServerState,
  exit: WorkExit,
  { finished_at, target }: { readonly finished_at: string; readonly target: ServerSpec | undefined }
): ServerState => {
  const isTaken = Exit.isSuccess(exit) && target !== undefined
  const ended: ServerState = { ...state, work: "none" }
  const done = isTaken ? withTaken(ended, target) : ended
  if (Exit.isSuccess(exit) && state.work === "reset")
    return withReport(done, { type: "status", status: "offline", transient: true })
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
  return reported.status === "offline"
    ? reported
    : withReport(reported, { type: "status", status: "offline", transient: true })
}

const failureOf = (exit: WorkExit): InstallFailed | undefined =>
  Exit.isFailure(exit) ? exit.cause.reasons.find((reason) => reason._tag === "Fail")?.error : undefined

/** Runs the installation, reinstallation and reset of a server in a fiber, one at a time. */
export const makeInstanceWork = (options: WorkOptions) => {
  const { file, files, folder, installer, onDone, progress, runtime, scope, sources, turns } = options
  let fiber: Fiber.Fiber<void> | undefined
  /** The later definition for which the work is done; undefined: the server keeps its definition. */
  let target: ServerSpec | undefined

  const onSteps = Effect.fnUntraced(function* (steps: InstallSteps) {
    const change = (state: ServerState) => withSteps(state, withoutProgress(steps))
    const share = currentStep(steps)?.progress
    if (share === undefined) file.updateSoon(change)
    // The progress is that of the step that the state has.
    else yield* file.update(change)
    progress.set(share)
  })

  const begin = Effect.gen(function* () {
    const state = file.get()
    const started_at = yield* nowText
    const begun = (before: ServerState) => beginning(before, started_at)
    if (state.work === "reset") yield* file.update(begun)
    else file.updateSoon(begun)
    const user = serverUser(file, runtime)
    target = state.next
    const parts = { files, installer, onSteps, runtime, sources, turns, user }
    fiber = yield* doFileWork(folder, state, parts).pipe(
      Effect.exit,
      Effect.flatMap(onDone),
      Effect.forkIn(scope)
    )
  })

  const reset = Effect.gen(function* () {
    if (fiber !== undefined) return // it is in progress
    yield* file.update((state): ServerState => ({ ...state, work: "reset" }))
    yield* begin
  })

  const install = Effect.fnUntraced(function* (work: FileWork) {
    const started_at = yield* nowText
    yield* file.update((state) =>
      withReport(withReport({ ...state, work }, { type: "status", status: "installing", transient: false }), {
        type: "install-status",
        install: { phase: "installing", started_at }
      })
    )
    yield* begin
  })

  const done = Effect.fnUntraced(function* (exit: WorkExit) {
    fiber = undefined
    progress.set(undefined)
    const { work } = file.get()
    const failure = failureOf(exit)
    if (failure !== undefined) {
      const what = work === "reset" ? "reset" : "installed"
      yield* Effect.logWarning(`the server cannot be ${what}: ${failure.reason}`)
    } else if (Exit.isFailure(exit)) {
      yield* Effect.logError("work on the files failed", exit.cause)
    }
    const finished_at = yield* nowText
    const { spec } = yield* file.update((state) => workEnded(state, exit, { finished_at, target }))
    if (target !== undefined) files.register(folder, spec)
  })

  const interrupt = Effect.suspend(() => (fiber === undefined ? Effect.void : Fiber.interrupt(fiber)))

  return {
    begin,
    reset,
    reinstall: install("reinstall"),
    upgrade: install("upgrade"),
    done,
    interrupt,
    isRunning: () => fiber !== undefined
  }
}
