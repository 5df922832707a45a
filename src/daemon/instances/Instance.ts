import { Deferred, Effect, type Scope } from "effect"
import { DaemonRefused } from "../../api/Daemon.ts"
import { DEFAULT_BACKOFF } from "../../domain/Blueprint.ts"
import { changesBetween } from "../../domain/definitionChanges.ts"
import type { PowerAction, ServerSpec } from "../../domain/NodeMessages.ts"
import { stopTimeoutOf } from "../../domain/ServerDefinition.ts"
import { isUp } from "../../domain/ServerStatus.ts"
import { atPlace } from "../../work/trace.ts"
import type { ConsoleLog } from "../console/ConsoleLog.ts"
import type { Uplink } from "../controlPlane/ReportOutbox.ts"
import type { FileSources, InstanceFiles } from "../files/InstanceFiles.ts"
import type { Installer } from "../install/Installer.ts"
import { baseName } from "../install/scriptVariables.ts"
import type { Run, Runtime } from "../runtime/Runtime.ts"
import { LiveProgress } from "../state/LiveProgress.ts"
import {
  newestDefinition,
  pendingRestart,
  type ServerFile,
  withNext,
  withReport,
  withTaken
} from "../state/ServerFile.ts"
import { makeInstanceProcess } from "./instanceProcess.ts"
import { makeInstanceWork } from "./instanceWork.ts"
import { remainingMillis } from "./LiveRun.ts"
import { type Message, openMailbox, type Reply, replyWith } from "./mailbox.ts"
import { powerDecision } from "./powerDecision.ts"
import { serverUser } from "./serverUser.ts"

/** A server of this node: a fiber that serialises all its operations. */
export interface Instance {
  readonly file: ServerFile
  readonly folder: string
  readonly console: ConsoleLog
  /** The progress of its installation. */
  readonly progress: LiveProgress
  /** Waits until the process of an earlier service is adopted or its end is known. */
  readonly adopted: Effect.Effect<void>
  /** Whether the adoption is complete. */
  readonly isAdopted: () => boolean
  /** Returns the run of the process; undefined: none. */
  readonly run: () => Run | undefined
  power(action: PowerAction, wait_seconds: number): Effect.Effect<void, DaemonRefused>
  readonly reset: Effect.Effect<void, DaemonRefused>
  readonly reinstall: Effect.Effect<void, DaemonRefused>
  /** Takes a later definition: at once if the server is offline, else at its next start. */
  define(spec: ServerSpec): Effect.Effect<void, DaemonRefused>
  /** See `Daemon.hold`. */
  hold(held: boolean): Effect.Effect<void, DaemonRefused>
  /** Kills the process, interrupts work on the files and refuses later calls. The folder stays. */
  readonly shutDown: Effect.Effect<void, DaemonRefused>
}

export interface InstanceOptions {
  readonly file: ServerFile
  readonly folder: string
  readonly console: ConsoleLog
  readonly runtime: Runtime["Service"]
  readonly installer: Installer["Service"]
  readonly files: InstanceFiles["Service"]
  readonly sources: FileSources
  readonly replacePorts: Uplink["replacePorts"]
}

const conflict = (detail: string, hint: string) => new DaemonRefused({ status: 409, detail, hint })
/** Opens a server in the scope: adopts its process, continues unfinished work, then handles messages. */
export const openInstance = Effect.fnUntraced(function* (options: InstanceOptions, scope: Scope.Scope) {
  const { console, file, files, folder, installer, replacePorts, runtime, sources } = options
  const { id } = file.get().spec
  const mailbox = yield* openMailbox(id)
  const { offer, request } = mailbox
  const adopted = yield* Deferred.make<void>()
  const proc = makeInstanceProcess({
    file,
    files,
    folder,
    console,
    runtime,
    sources,
    replacePorts,
    scope,
    onEvent: offer
  })
  const progress = new LiveProgress()
  const work = makeInstanceWork({
    progress,
    file,
    files,
    folder,
    installer,
    runtime,
    sources,
    scope,
    onDone: (exit) => offer({ _tag: "WorkDone", exit })
  })

  /** Continues a restart, a reset or interrupted work. */
  const resume: Effect.Effect<void> = Effect.suspend(() => {
    const state = file.get()
    if (isUp(state.status)) return Effect.void
    if (state.work !== "none") return work.begin
    // A server that is not saved ends with its run.
    const takes = state.install.phase === "ready" && (state.spec.definition.save || state.start_again)
    if (state.next !== undefined && state.held !== true && takes) {
      return Effect.flatMap(takeNext, (isWorking) => (isWorking ? Effect.void : resume))
    }
    if (!state.start_again || state.held === true) return Effect.void
    const at = pendingRestart(state)
    return at === undefined ? proc.startAgain : awaitRestart(at)
  })

  /** Gives the offline server its later definition; true: an installation comes first. */
  const takeNext = Effect.gen(function* () {
    const { install, next, spec } = file.get()
    if (next === undefined) return false
    if (next.reinstall === true) {
      yield* work.reinstall
      return true
    }
    const changes = changesBetween(spec.definition, next.definition)
    // The script may read variables of the server.
    const isOther = baseName(spec) !== baseName(next)
    if (isOther || install.phase !== "ready" || changes.some(({ needs }) => needs === "installation")) {
      yield* work.upgrade
      return true
    }
    files.register(folder, next)
    // The report says which definition the server has.
    yield* file.update((state) =>
      withReport(withTaken(state, next), { type: "status", status: "offline", transient: true })
    )
    return false
  })

  const define = Effect.fnUntraced(function* (spec: ServerSpec) {
    if ((spec.defined_at ?? 0) <= newestDefinition(file.get())) return
    const { held, status, work: busy } = yield* file.update((state) => withNext(state, spec))
    if (isUp(status) || busy !== "none" || held === true) return
    if (spec.reinstall === true) yield* cancelRestart
    yield* takeNext
  })

  const awaitRestart = Effect.fnUntraced(function* (at: number) {
    // The clock may have been set since: the wait is never longer than the rule allows.
    const { delay, max_delay } = { ...DEFAULT_BACKOFF, ...file.get().spec.definition.restart }
    const wait = yield* remainingMillis(at, Math.max(delay, max_delay))
    yield* Effect.sleep(wait).pipe(Effect.andThen(offer({ _tag: "RestartDue", at })), Effect.forkIn(scope))
  })

  const onRestartDue = Effect.fnUntraced(function* (at: number) {
    const state = file.get()
    const isDue = pendingRestart(state) === at && state.work === "none" && state.held !== true
    if (isDue) yield* proc.startAgain
  })

  /** A reset or reinstallation cancels a pending restart, as a stop does. */
  const cancelRestart = Effect.suspend(() =>
    pendingRestart(file.get()) === undefined ? Effect.void : proc.cancelRestart
  )

  const power = Effect.fnUntraced(function* (action: PowerAction, wait_seconds: number, reply: Reply) {
    const decision = powerDecision(file.get(), action)
    switch (decision.do) {
      case "refuse":
        return yield* conflict(decision.detail, decision.hint)
      case "start":
        return yield* proc.start
      case "defer":
        yield* file.update((state) => ({ ...state, start_again: true }))
        return
      case "cancel":
        return yield* proc.cancelRestart
      case "end":
        return yield* proc.end(decision.as, wait_seconds)
      case "kill":
        return yield* proc.kill(Effect.asVoid(Deferred.succeed(reply, undefined)))
      case "pause":
        return yield* proc.pause
      case "unpause":
        return yield* proc.unpause
    }
  })

  const hold = Effect.fnUntraced(function* (held: boolean) {
    const { status, work: busy } = file.get()
    if (held && (status === "installing" || busy !== "none")) {
      return yield* conflict("the node is working on the files of the server", "Wait until it is done.")
    }
    yield* file.update((state) => (held === (state.held ?? false) ? state : { ...state, held }))
    if (!held) yield* resume
  })

  const refuseHeld = Effect.suspend(() =>
    file.get().held === true
      ? conflict("the server is migrating", "Wait until it is on its new node.")
      : Effect.void
  )

  const reset = Effect.gen(function* () {
    yield* refuseHeld
    const state = file.get()
    if (isUp(state.status)) return yield* proc.end("reset", stopTimeoutOf(state.spec.definition))
    if (state.status === "installing" || state.install.phase !== "ready") {
      return yield* conflict("the server is not installed", "Reset it once its install phase is ready.")
    }
    yield* cancelRestart
    yield* work.reset
  })

  const reinstall = Effect.gen(function* () {
    yield* refuseHeld
    const { status, work: busy } = file.get()
    if (status === "installing")
      return yield* conflict("the server is being installed", "Wait until it is done.")
    if (status !== "offline") return yield* conflict(`the server is ${status}`, "Stop the server first.")
    if (busy !== "none")
      return yield* conflict("the files of the server are being reset", "Wait until it is done.")
    yield* cancelRestart
    yield* work.reinstall
  })

  const shutDown = Effect.gen(function* () {
    mailbox.end()
    yield* work.interrupt
    yield* proc.destroy
    yield* console.end
  })

  const handle = (message: Message): Effect.Effect<void> => {
    switch (message._tag) {
      case "Power":
        return replyWith(message.reply, power(message.action, message.wait_seconds, message.reply))
      case "Reset":
        return replyWith(message.reply, reset)
      case "Reinstall":
        return replyWith(message.reply, reinstall)
      case "Hold":
        return replyWith(message.reply, hold(message.held))
      case "Define":
        return replyWith(message.reply, define(message.spec))
      case "ShutDown":
        return replyWith(message.reply, shutDown)
      case "RestartDue":
        return onRestartDue(message.at)
      case "WorkDone":
        return Effect.andThen(work.done(message.exit), resume)
      default:
        return Effect.flatMap(proc.event(message), (isEnded) => (isEnded ? resume : Effect.void))
    }
  }

  /** Mounts the files of an offline server, which a reboot of the host has unmounted. */
  const mountFiles = Effect.suspend(() => {
    const { install, spec, status, work: busy } = file.get()
    if (isUp(status) || busy !== "none" || install.phase !== "ready") return Effect.void
    return Effect.gen(function* () {
      const kind = yield* runtime.kindFor(spec.definition)
      yield* files.open(folder, spec, kind, yield* serverUser(file, runtime))
    }).pipe(Effect.catch((error) => Effect.logWarning(`the files cannot be mounted: ${error.message}`)))
  })

  const guarded = (what: string, effect: Effect.Effect<void>) =>
    Effect.catchCause(effect, (cause) => Effect.logError(`${what} failed`, cause))

  const serve = Effect.gen(function* () {
    yield* guarded("adoption", proc.adopt)
    yield* Deferred.succeed(adopted, undefined)
    yield* guarded("resuming work", resume)
    yield* guarded("mounting the files", mountFiles)
    while (mailbox.isOpen()) {
      const { message, place } = yield* Effect.interruptible(mailbox.take)
      yield* atPlace(place)(guarded(message._tag, handle(message)))
    }
  }).pipe(Effect.ensuring(mailbox.close))
  // Uninterruptible: a message is completed, also when the service stops.
  yield* Effect.forkIn(serve, scope, { uninterruptible: true })

  const instance: Instance = {
    file,
    folder,
    console,
    progress,
    adopted: Deferred.await(adopted),
    isAdopted: () => Deferred.isDoneUnsafe(adopted),
    run: proc.run,
    power: (action, wait_seconds) => request((reply) => ({ _tag: "Power", action, wait_seconds, reply })),
    reset: request((reply) => ({ _tag: "Reset", reply })),
    reinstall: request((reply) => ({ _tag: "Reinstall", reply })),
    define: (spec) => request((reply) => ({ _tag: "Define", spec, reply })),
    hold: (held) => request((reply) => ({ _tag: "Hold", held, reply })),
    shutDown: request((reply) => ({ _tag: "ShutDown", reply }))
  }
  return instance
})
