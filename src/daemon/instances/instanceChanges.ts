/** The changes of an instance, which run one at a time. */
import { Clock, Effect } from "effect"
import { DEFAULT_BACKOFF } from "../../contract/domain/Blueprint.ts"
import { changesBetween } from "../../contract/domain/compareDefinitions.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { nowText } from "../../contract/domain/nowText.ts"
import { stopTimeoutOf } from "../../contract/domain/ServerDefinition.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import { discardUploads } from "../files/uploadFiles.ts"
import { baseName } from "../install/bases.ts"
import {
  type InstanceState,
  newestDefinition,
  pendingRestart,
  withNext,
  withReport,
  withStatusReport,
  withTaken,
  withTurn
} from "../state/InstanceState.ts"
import {
  adoptProcess,
  cancelRestart,
  destroyProcess,
  onRunEvent,
  start,
  startAgain,
  startWaiting
} from "./instanceRun.ts"
import { beginWork, interruptWork, workDone } from "./instanceWork.ts"
import { canStartInTurn, type InstanceAction, powerDecision } from "./powerDecision.ts"
import { release, yieldTo } from "./quiescing.ts"
import { refuse } from "./refusals.ts"
import { serverUser } from "./serverUser.ts"
import type { Serving } from "./serving.ts"
import { endProcess, killProcess, pause, type RunEvent, remainingMillis, unpause } from "./watchRun.ts"

const conflict = (detail: string, hint: string) => refuse(409, detail, hint)

/** Continues what an offline server waits for: work on its files, a later definition, a start. */
const resume = (it: Serving): Effect.Effect<void> =>
  Effect.suspend(() => {
    const state = it.file.get()
    if (isUp(state.status)) return Effect.void
    if (state.work !== "none") {
      return beginWork(it, (exit) =>
        it.post("end of work on files", (serving) => Effect.andThen(workDone(serving, exit), resume(serving)))
      )
    }
    // A server that is not saved ends with its run.
    const takes = state.install.phase === "ready" && (state.spec.definition.save || state.start_again)
    // A backup reads the files of a server that it or a caller has stopped; a restart of a caller ends it.
    const isRead = it.accesses.exclusive !== undefined && !state.start_again
    const isFree = state.held !== true && state.quiesced === undefined && !isRead
    if (state.next !== undefined && isFree && takes) {
      return Effect.flatMap(takeNext(it), (isWorking) => (isWorking ? Effect.void : resume(it)))
    }
    if (state.held === true || it.starts.isClosed()) return Effect.void
    if (state.waiting === true) return Effect.sync(it.starts.wake)
    if (!state.start_again) return Effect.void
    const at = pendingRestart(state)
    return at === undefined ? startAgain(it) : awaitRestart(it, at)
  })

/** Begins work on the files of an offline server. */
const startWork = Effect.fnUntraced(function* (it: Serving, work: "reinstall" | "upgrade" | "reset") {
  const started_at = yield* nowText
  yield* it.file.update(
    (state): InstanceState =>
      work === "reset"
        ? { ...state, work }
        : withReport(withStatusReport({ ...state, work }, "installing"), {
            type: "install-status",
            install: { phase: "installing", started_at }
          })
  )
  yield* resume(it)
})

/** Gives the offline server its later definition, and returns whether an installation comes first. */
const takeNext = Effect.fnUntraced(function* (it: Serving) {
  const { install, next, spec } = it.file.get()
  if (next === undefined) return false
  if (next.reinstall === true) {
    yield* startWork(it, "reinstall")
    return true
  }
  const changes = changesBetween(spec.definition, next.definition)
  // The script may read variables of the server.
  const isOther = baseName(spec) !== baseName(next)
  if (isOther || install.phase !== "ready" || changes.some(({ needs }) => needs === "installation")) {
    yield* startWork(it, "upgrade")
    return true
  }
  it.files.register(it.folder, next)
  // The report says which definition the server has.
  yield* it.file.update((state) => withStatusReport(withTaken(state, next), "offline", true))
  return false
})

export const define = Effect.fnUntraced(function* (it: Serving, spec: ServerSpec) {
  if ((spec.defined_at ?? 0) <= newestDefinition(it.file.get())) return
  const { held, quiesced, status, work } = yield* it.file.update((state) => withNext(state, spec))
  if (isUp(status) || work !== "none" || held === true || quiesced !== undefined) return
  if (spec.reinstall === true) yield* cancelStart(it)
  yield* takeNext(it)
})

const awaitRestart = Effect.fnUntraced(function* (it: Serving, at: number) {
  // The clock may have been set since: the wait is never longer than the rule allows.
  const { delay, max_delay } = { ...DEFAULT_BACKOFF, ...it.file.get().spec.definition.restart }
  const wait = yield* remainingMillis(at, Math.max(delay, max_delay))
  const onDue = it.post("restart", (serving) => onRestartDue(serving, at))
  yield* Effect.sleep(wait).pipe(Effect.andThen(onDue), Effect.forkIn(it.scope))
})

const onRestartDue = Effect.fnUntraced(function* (it: Serving, at: number) {
  const state = it.file.get()
  const isDue = pendingRestart(state) === at && state.work === "none" && state.held !== true
  if (isDue && !it.starts.isClosed()) yield* startAgain(it)
})

/** Restarts that were due while there was no daemon come in turn: there may be hundreds. */
const queueDueRestart = Effect.fnUntraced(function* ({ file }: Serving) {
  const at = pendingRestart(file.get())
  if (at !== undefined && at <= (yield* Clock.currentTimeMillis)) yield* file.update(withTurn)
})

/** Starts the server whose turn has come. With `isLast`, a refusal because of the node's state is final, too. */
export const startInTurn = Effect.fnUntraced(function* (it: Serving, isLast: boolean) {
  if (canStartInTurn(it.file.get()) && !it.starts.isClosed()) yield* startWaiting(it, isLast)
})

/** A reset or reinstallation cancels a start that the server waits for, as a stop does. */
const cancelStart = (it: Serving) =>
  Effect.suspend(() =>
    pendingRestart(it.file.get()) === undefined && it.file.get().waiting !== true
      ? Effect.void
      : cancelRestart(it)
  )

/** Records the first caller whose stop holds; an offline server reports it at once. */
const recordStop = ({ file }: Serving, by: string) =>
  file.update((state): InstanceState => {
    if (state.stopped_by !== undefined || !state.spec.definition.save) return state
    const stopped = { ...state, stopped_by: by }
    const { start_again, status, waiting } = state
    return status === "offline" && !start_again && waiting !== true
      ? withStatusReport(stopped, status)
      : stopped
  })

/** @param by the caller, if it is known */
export const power = Effect.fnUntraced(function* (
  it: Serving,
  accept: Effect.Effect<void>,
  action: InstanceAction,
  wait_seconds: number,
  by: string | undefined
) {
  const { file } = it
  if (it.accesses.closed !== undefined && (action === "start" || action === "restart"))
    return yield* refuseBusy(it)
  if (by !== undefined && (action === "stop" || action === "kill")) yield* recordStop(it, by)
  yield* yieldTo(it, action)
  const decision = powerDecision(file.get(), action)
  switch (decision.do) {
    case "refuse":
      return yield* conflict(decision.detail, decision.hint)
    case "start":
      return yield* start(it)
    case "defer":
      yield* file.update((state) => ({ ...state, start_again: true }))
      return
    case "cancel":
      if (file.get().work === "none") return yield* cancelRestart(it)
      yield* file.update((state) => ({ ...state, start_again: false }))
      return
    case "end":
      return yield* endProcess(it, decision.as, wait_seconds)
    case "kill":
      return yield* killProcess(it, accept)
    case "pause":
      return yield* pause(it)
    case "unpause":
      return yield* unpause(it)
  }
})

/** Refuses work on files that a task has for itself (spec 12.4). */
const refuseBusy = ({ accesses: { exclusive } }: Serving) =>
  exclusive === undefined
    ? Effect.void
    : conflict(`${exclusive} runs on the server`, "Wait until it has ended, or cancel it.")

export const hold = Effect.fnUntraced(function* (it: Serving, held: boolean) {
  const { status, work } = it.file.get()
  if (held) yield* refuseBusy(it)
  if (held && (status === "installing" || work !== "none")) {
    return yield* conflict("the node is working on the files of the server", "Wait until it is done.")
  }
  yield* it.file.update((state) => (held === (state.held ?? false) ? state : { ...state, held }))
  if (!held) return yield* resume(it)
  yield* it.accesses.interrupt
  // The files of the server leave the node.
  yield* discardUploads(it.files, it.folder, it.file.get().spec)
})

const refuseHeld = ({ file }: Serving) =>
  Effect.suspend(() =>
    file.get().held === true
      ? conflict("the server is migrating", "Wait until it is on its new node.")
      : Effect.void
  )

export const reset = Effect.fnUntraced(function* (it: Serving) {
  yield* refuseHeld(it)
  yield* refuseBusy(it)
  const { install, spec, status, work } = it.file.get()
  if (isUp(status)) return yield* endProcess(it, "reset", stopTimeoutOf(spec.definition))
  if (work === "reset") return // it is in progress
  if (status === "installing" || install.phase !== "ready") {
    return yield* conflict("the server is not installed", "Reset it once its install phase is ready.")
  }
  yield* cancelStart(it)
  yield* startWork(it, "reset")
})

export const reinstall = Effect.fnUntraced(function* (it: Serving) {
  yield* refuseHeld(it)
  yield* refuseBusy(it)
  const { status, work } = it.file.get()
  if (status === "installing")
    return yield* conflict("the server is being installed", "Wait until it is done.")
  if (status !== "offline") return yield* conflict(`the server is ${status}`, "Stop the server first.")
  if (work !== "none")
    return yield* conflict("the files of the server are being reset", "Wait until it is done.")
  yield* cancelStart(it)
  yield* startWork(it, "reinstall")
})

/** Puts the files of a backup in place, which were made aside (spec 12.5). */
export const placeFiles = Effect.fnUntraced(
  function* (it: Serving, task: string) {
    yield* refuseHeld(it)
    const { file, files, folder, runtime } = it
    const { spec, status, work } = file.get()
    if (status !== "offline" || work !== "none")
      return yield* conflict(`the server is ${status}`, "Stop it, then restore the backup again.")
    yield* it.accesses.interrupt
    yield* discardUploads(files, folder, spec)
    const kind = yield* runtime.kindFor(spec.definition)
    yield* files.place(folder, spec, kind, { task, user: yield* serverUser(file, runtime) })
  },
  Effect.catch((error) =>
    error._tag === "DaemonRefused" ? error : refuse(500, error.message, "Read the log of the node.")
  )
)

/** Ends the quiescence of a server; one that was stopped for it is started in its turn (spec 12.10). */
export const endQuiescence = (it: Serving) => Effect.andThen(release(it), resume(it))

/** Kills the process and interrupts work on the files. */
export const destroy = Effect.fnUntraced(function* (it: Serving) {
  yield* it.accesses.interrupt
  yield* interruptWork(it)
  yield* destroyProcess(it)
})

/** Mounts the files of an offline server, which a reboot of the host has unmounted. */
const mountFiles = ({ file, files, folder, runtime }: Serving) =>
  Effect.suspend(() => {
    const { install, spec, status, work } = file.get()
    if (isUp(status) || work !== "none" || install.phase !== "ready") return Effect.void
    return Effect.gen(function* () {
      const kind = yield* runtime.kindFor(spec.definition)
      yield* files.open(folder, spec, kind, yield* serverUser(file, runtime))
    }).pipe(Effect.catch((error) => Effect.logWarning(`the files cannot be mounted: ${error.message}`)))
  })

const guarded = (what: string, effect: Effect.Effect<void>) =>
  Effect.catchCause(effect, (cause) => Effect.logError(`${what} failed`, cause))

/** Adopts the process of an earlier service, then continues its work. */
export const adopt = Effect.fnUntraced(function* (it: Serving, onAdopted: Effect.Effect<void>) {
  const { file, runtime } = it
  const { run, spec } = file.get()
  yield* guarded("adoption", run === null ? runtime.sweep(spec.id) : adoptProcess(it))
  yield* guarded("release", release(it))
  yield* onAdopted
  yield* guarded("resuming work", Effect.andThen(queueDueRestart(it), resume(it)))
  yield* guarded("mounting the files", mountFiles(it))
})

/** Handles an event of the run; after its end, the server continues. */
export const onEvent = (it: Serving, event: RunEvent) =>
  Effect.flatMap(onRunEvent(it, event), (isEnded) => (isEnded ? resume(it) : Effect.void))

/** Whether there is nothing to do until the next change. */
export const isIdle = ({ failedConfigs, file, live, work }: Serving): boolean => {
  const state = file.get()
  const isBusy = isUp(state.status) || state.start_again || state.work !== "none"
  return !isBusy && work === undefined && live === undefined && failedConfigs === undefined
}
