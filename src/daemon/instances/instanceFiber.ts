import { Clock, Deferred, Effect, Exit, Scope, type Semaphore } from "effect"
import { DEFAULT_BACKOFF } from "../../contract/domain/Blueprint.ts"
import { changesBetween } from "../../contract/domain/definitionChanges.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { stopTimeoutOf } from "../../contract/domain/ServerDefinition.ts"
import { isUp } from "../../contract/domain/ServerStatus.ts"
import { DaemonRefused } from "../../contract/nodeApi/Daemon.ts"
import { atPlace, type TracePlace } from "../../shared/observability/trace.ts"
import type { ConsoleLog } from "../console/ConsoleLog.ts"
import type { InstanceFiles } from "../files/InstanceFiles.ts"
import type { FileSources } from "../files/sources.ts"
import type { Installer } from "../install/Installer.ts"
import { baseName } from "../install/scriptVariables.ts"
import type { Run, Runtime } from "../runtime/Runtime.ts"
import type { InstanceFile } from "../state/InstanceFile.ts"
import {
  type InstanceState,
  newestDefinition,
  pendingRestart,
  withNext,
  withReport,
  withTaken,
  withTurn
} from "../state/InstanceState.ts"
import type { LiveProgress } from "../uplink/ReportOutbox.ts"
import type { Uplink } from "../uplink/uplink.ts"
import { type InstanceRun, makeInstanceRun } from "./instanceRun.ts"
import { makeInstanceWork } from "./instanceWork.ts"
import { Mailbox, type Message, replyWith } from "./mailbox.ts"
import { powerDecision } from "./powerDecision.ts"
import type { Turns } from "./StartQueue.ts"
import { serverUser } from "./serverUser.ts"
import { remainingMillis } from "./watchRun.ts"

export interface InstanceParts {
  readonly runtime: Runtime["Service"]
  readonly installer: Installer["Service"]
  readonly files: InstanceFiles["Service"]
  readonly sources: FileSources
  /** Bounds the servers whose files are made at a time: with all at once, each would take as long as all of them. */
  readonly turns: Semaphore.Semaphore
  readonly replacePorts: Uplink["replacePorts"]
  readonly starts: Turns
}

export interface FiberOptions extends InstanceParts {
  readonly file: InstanceFile
  readonly folder: string
  /** Opens the console, once at most, until {@link FiberOptions.onIdle}. */
  readonly console: () => ConsoleLog
  readonly progress: LiveProgress
  /** Whether the process of an earlier service is to be adopted, and its work continued, before any message. */
  readonly adopts: boolean
  /** The place of a trace to which that belongs. */
  readonly place: TracePlace
  readonly onAdopted: () => void
  /** Called when there is nothing to do until the next message: that opens the server again. */
  readonly onIdle: () => void
}

export interface InstanceFiber {
  readonly mailbox: Mailbox
  readonly run: () => Run | undefined
  readonly serve: Effect.Effect<void>
}

type PowerRequest = Extract<Message, { readonly _tag: "Power" }>

const conflict = (detail: string, hint: string) => new DaemonRefused({ status: 409, detail, hint })

/** Opens a server: its fiber serialises all operations. Fibers of its run, work and timers end with it. */
export const serveInstance = (options: FiberOptions): InstanceFiber => {
  const { adopts, console, file, files, folder, onAdopted, onIdle, runtime, starts } = options
  const { id } = file.get().spec
  const mailbox = new Mailbox()
  const scope = Scope.makeUnsafe()
  const offer = (message: Message) => Effect.sync(() => void mailbox.add(message))
  let made: InstanceRun | undefined
  /** Makes the process and its console at their first use: an installation has neither. */
  const proc = () => {
    made ??= makeInstanceRun({ ...options, console: console(), scope, onEvent: offer })
    return made
  }
  const work = makeInstanceWork({ ...options, scope, onDone: (exit) => offer({ _tag: "WorkDone", exit }) })

  const resume: Effect.Effect<void> = Effect.suspend(() => {
    const state = file.get()
    if (isUp(state.status)) return Effect.void
    if (state.work !== "none") return work.begin
    // A server that is not saved ends with its run.
    const takes = state.install.phase === "ready" && (state.spec.definition.save || state.start_again)
    if (state.next !== undefined && state.held !== true && takes) {
      return Effect.flatMap(takeNext, (isWorking) => (isWorking ? Effect.void : resume))
    }
    if (state.held === true || starts.isClosed()) return Effect.void
    if (state.waiting === true) return Effect.sync(starts.wake)
    if (!state.start_again) return Effect.void
    const at = pendingRestart(state)
    return at === undefined ? proc().startAgain : awaitRestart(at)
  })

  /** Gives the offline server its later definition, and returns whether an installation comes first. */
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
    if (isDue && !starts.isClosed()) yield* proc().startAgain
  })

  /** Restarts that were due while there was no daemon come in turn: there may be hundreds. */
  const queueDueRestart = Effect.gen(function* () {
    const at = pendingRestart(file.get())
    if (at !== undefined && at <= (yield* Clock.currentTimeMillis)) yield* file.update(withTurn)
  })

  const startInTurn = Effect.fnUntraced(function* (isLast: boolean) {
    const { held, status, waiting, work: busy } = file.get()
    if (waiting === true && status === "offline" && busy === "none" && held !== true && !starts.isClosed())
      yield* proc().startInTurn(isLast)
  })

  /** A reset or reinstallation cancels a start that the server waits for, as a stop does. */
  const cancelRestart = Effect.suspend(() =>
    pendingRestart(file.get()) === undefined && file.get().waiting !== true
      ? Effect.void
      : proc().cancelRestart
  )

  /** Records the first caller whose stop holds; an offline server reports it at once. */
  const recordStop = Effect.fnUntraced(function* (by: string) {
    const change = (state: InstanceState): InstanceState => {
      if (state.stopped_by !== undefined || !state.spec.definition.save) return state
      const stopped = { ...state, stopped_by: by }
      const { start_again, status, waiting } = state
      return status === "offline" && !start_again && waiting !== true
        ? withReport(stopped, { type: "status", status, transient: false })
        : stopped
    }
    yield* file.update(change)
  })

  const power = Effect.fnUntraced(function* ({ action, by, reply, wait_seconds }: PowerRequest) {
    if (by !== undefined && (action === "stop" || action === "kill")) yield* recordStop(by)
    const decision = powerDecision(file.get(), action)
    switch (decision.do) {
      case "refuse":
        return yield* conflict(decision.detail, decision.hint)
      case "start":
        return yield* proc().start
      case "defer":
        yield* file.update((state) => ({ ...state, start_again: true }))
        return
      case "cancel":
        if (file.get().work === "none") return yield* proc().cancelRestart
        yield* file.update((state) => ({ ...state, start_again: false }))
        return
      case "end":
        return yield* proc().end(decision.as, wait_seconds)
      case "kill":
        return yield* proc().kill(Effect.asVoid(Deferred.succeed(reply, undefined)))
      case "pause":
        return yield* proc().pause
      case "unpause":
        return yield* proc().unpause
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
    if (isUp(state.status)) return yield* proc().end("reset", stopTimeoutOf(state.spec.definition))
    if (state.work === "reset") return // it is in progress
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
    yield* made?.destroy ?? runtime.sweep(id)
  })

  const handle = (message: Message): Effect.Effect<void> => {
    switch (message._tag) {
      case "Power":
        return replyWith(message.reply, power(message))
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
      case "TurnCame":
        return replyWith(message.reply, startInTurn(message.isLast))
      case "RestartDue":
        return onRestartDue(message.at)
      case "WorkDone":
        return Effect.andThen(work.done(message.exit), resume)
      default:
        return Effect.flatMap(proc().event(message), (isEnded) => (isEnded ? resume : Effect.void))
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

  const isIdle = () => {
    const { start_again, status, work: busy } = file.get()
    return !isUp(status) && !start_again && busy === "none" && !work.isRunning() && made?.run() === undefined
  }

  const serve = Effect.gen(function* () {
    if (adopts) {
      yield* atPlace(options.place)(
        guarded("adoption", file.get().run === null ? runtime.sweep(id) : proc().adopt).pipe(
          Effect.andThen(Effect.sync(onAdopted)),
          Effect.andThen(guarded("resuming work", Effect.andThen(queueDueRestart, resume))),
          Effect.andThen(guarded("mounting the files", mountFiles))
        )
      )
    }
    while (mailbox.isOpen()) {
      if (mailbox.isEmpty() && isIdle()) {
        // Must stay synchronous with the check above: a later message opens the server again.
        mailbox.end()
        return onIdle()
      }
      const { message, place } = yield* Effect.interruptible(mailbox.take)
      yield* atPlace(place)(guarded(message._tag, handle(message)))
    }
  }).pipe(
    Effect.ensuring(Effect.sync(() => mailbox.close(id))),
    Effect.ensuring(Scope.close(scope, Exit.void))
  )

  return { mailbox, run: () => made?.run(), serve }
}
