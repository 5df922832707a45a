import { Deferred, Effect, Exit, Queue, type Scope } from "effect"
import { DaemonRefused } from "../../api/Daemon.ts"
import type { PowerAction } from "../../domain/NodeMessages.ts"
import { isUp } from "../../domain/ServerStatus.ts"
import type { ConsoleLog } from "../console/ConsoleLog.ts"
import type { FileSources, InstanceFiles } from "../files/InstanceFiles.ts"
import type { Installer } from "../install/Installer.ts"
import type { Run, Runtime } from "../runtime/Runtime.ts"
import type { ServerFile } from "../state/ServerFile.ts"
import { makeInstanceProcess } from "./instanceProcess.ts"
import { makeInstanceWork, type WorkExit } from "./instanceWork.ts"
import type { RunEvent } from "./LiveRun.ts"
import { powerDecision } from "./powerDecision.ts"
import { serverUser } from "./serverUser.ts"

type Reply = Deferred.Deferred<void, DaemonRefused>

/** What the fiber of a server works through, one after the other. */
type Message =
  | RunEvent
  | {
      readonly _tag: "Power"
      readonly action: PowerAction
      readonly wait_seconds: number
      readonly reply: Reply
    }
  | { readonly _tag: "Reset" | "Reinstall" | "ShutDown"; readonly reply: Reply }
  | { readonly _tag: "Hold"; readonly held: boolean; readonly reply: Reply }
  | { readonly _tag: "WorkDone"; readonly exit: WorkExit }

/** One server of this node: a fiber that serialises everything that happens to it. */
export interface Instance {
  readonly file: ServerFile
  readonly folder: string
  readonly console: ConsoleLog
  /** Waits until what an earlier process of this service left has been looked at. */
  readonly adopted: Effect.Effect<void>
  /** Whether it has been. */
  readonly isAdopted: () => boolean
  /** The run of the process; undefined while there is none. */
  readonly run: () => Run | undefined
  power(action: PowerAction, wait_seconds: number): Effect.Effect<void, DaemonRefused>
  readonly reset: Effect.Effect<void, DaemonRefused>
  readonly reinstall: Effect.Effect<void, DaemonRefused>
  /** See `Daemon.hold`. */
  hold(held: boolean): Effect.Effect<void, DaemonRefused>
  /** Ends the process and all work on the files; nothing is done afterwards. The folder is left. */
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
}

/** How long a server may take to stop for a reset, in seconds. */
const RESET_PATIENCE = 30

const conflict = (detail: string, hint: string) => new DaemonRefused({ status: 409, detail, hint })
const broken = new DaemonRefused({
  status: 500,
  detail: "internal error of the node",
  hint: "The node's log says more."
})
const gone = (id: string) =>
  new DaemonRefused({
    status: 404,
    detail: `server not found: ${id}`,
    hint: "It has been removed from its node."
  })

/** Opens a server in the scope: adopts its process, goes on with its unfinished work, then serves its messages. */
export const openInstance = Effect.fnUntraced(function* (options: InstanceOptions, scope: Scope.Scope) {
  const { console, file, files, folder, installer, runtime, sources } = options
  const { id } = file.get().spec
  const inbox = yield* Queue.unbounded<Message>()
  const adopted = yield* Deferred.make<void>()
  let open = true
  const offer = (message: Message) => Effect.asVoid(Queue.offer(inbox, message))
  const proc = makeInstanceProcess({ file, files, folder, console, runtime, sources, scope, onEvent: offer })
  const work = makeInstanceWork({
    file,
    files,
    folder,
    installer,
    runtime,
    sources,
    scope,
    onDone: (exit) => offer({ _tag: "WorkDone", exit })
  })

  /** What a restart, a reset, or a service that was cut off has left to do. */
  const goOn: Effect.Effect<void> = Effect.suspend(() => {
    const state = file.get()
    if (isUp(state.status)) return Effect.void
    if (state.work !== "none") return work.begin
    return state.start_again && state.held !== true ? proc.startAgain : Effect.void
  })

  const power = Effect.fnUntraced(function* (action: PowerAction, wait_seconds: number, reply: Reply) {
    const decision = powerDecision(file.get(), action)
    switch (decision.do) {
      case "refuse":
        return yield* conflict(decision.detail, decision.hint)
      case "start":
        return yield* proc.start
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
      return yield* conflict("the node is at the files of the server", "Wait until it is done.")
    }
    yield* file.update((state) => (held === (state.held ?? false) ? state : { ...state, held }))
    if (!held) yield* goOn
  })

  const refuseHeld = Effect.suspend(() =>
    file.get().held === true
      ? conflict("the server is being moved", "Wait until it is on its new node.")
      : Effect.void
  )

  const reset = Effect.gen(function* () {
    yield* refuseHeld
    const state = file.get()
    if (isUp(state.status)) return yield* proc.end("reset", RESET_PATIENCE)
    if (state.status === "installing" || state.install.phase !== "ready") {
      return yield* conflict("the server is not installed", "Reset it once its install phase is ready.")
    }
    yield* work.reset
  })

  const reinstall = Effect.gen(function* () {
    yield* refuseHeld
    const { status, work: busy } = file.get()
    if (status === "installing")
      return yield* conflict("the server is being installed", "Wait until it is done.")
    if (status !== "offline") return yield* conflict(`the server is ${status}`, "Stop it first.")
    if (busy !== "none")
      return yield* conflict("the files of the server are being reset", "Wait until it is done.")
    yield* work.reinstall
  })

  const shutDown = Effect.gen(function* () {
    open = false
    yield* work.giveUp
    yield* proc.destroy
    yield* console.end
  })

  const handle = (message: Message): Effect.Effect<void> => {
    switch (message._tag) {
      case "Power":
        return answered(message.reply, power(message.action, message.wait_seconds, message.reply))
      case "Reset":
        return answered(message.reply, reset)
      case "Reinstall":
        return answered(message.reply, reinstall)
      case "Hold":
        return answered(message.reply, hold(message.held))
      case "ShutDown":
        return answered(message.reply, shutDown)
      case "WorkDone":
        return work.done(message.exit)
      default:
        return Effect.flatMap(proc.event(message), (over) => (over ? goOn : Effect.void))
    }
  }

  /** For whoever looks: a machine that was restarted has nothing mounted any more. */
  const showFiles = Effect.suspend(() => {
    const { install, spec, status, work: busy } = file.get()
    if (isUp(status) || busy !== "none" || install.phase !== "ready") return Effect.void
    return Effect.gen(function* () {
      const kind = yield* runtime.kindFor(spec.definition)
      yield* files.open(folder, spec, kind, yield* serverUser(file, runtime))
    }).pipe(Effect.catch((error) => Effect.logWarning(`files of ${id}: ${error.message}`)))
  })

  const guarded = (what: string, effect: Effect.Effect<void>) =>
    Effect.catchCause(effect, (cause) => Effect.logError(`server ${id}: ${what} failed`, cause))

  /** Nobody waits for ever for a server that is no longer served. */
  const refuseRest = Effect.gen(function* () {
    open = false
    for (const message of yield* Queue.clear(inbox)) {
      if ("reply" in message) yield* Deferred.fail(message.reply, gone(id))
    }
  })

  const serve = Effect.gen(function* () {
    yield* guarded("adoption", proc.adopt)
    yield* Deferred.succeed(adopted, undefined)
    yield* guarded("going on", goOn)
    yield* guarded("showing the files", showFiles)
    while (open) {
      const message = yield* Effect.interruptible(Queue.take(inbox))
      yield* guarded(message._tag, handle(message))
    }
  }).pipe(Effect.ensuring(refuseRest))
  // A message is handled to its end, also when the service stops.
  yield* Effect.forkIn(serve, scope, { uninterruptible: true })

  const ask = Effect.fnUntraced(function* (make: (reply: Reply) => Message) {
    if (!open) return yield* gone(id)
    const reply = yield* Deferred.make<void, DaemonRefused>()
    yield* offer(make(reply))
    return yield* Deferred.await(reply)
  })
  const instance: Instance = {
    file,
    folder,
    console,
    adopted: Deferred.await(adopted),
    isAdopted: () => Deferred.isDoneUnsafe(adopted),
    run: proc.run,
    power: (action, wait_seconds) => ask((reply) => ({ _tag: "Power", action, wait_seconds, reply })),
    reset: ask((reply) => ({ _tag: "Reset", reply })),
    reinstall: ask((reply) => ({ _tag: "Reinstall", reply })),
    hold: (held) => ask((reply) => ({ _tag: "Hold", held, reply })),
    shutDown: ask((reply) => ({ _tag: "ShutDown", reply }))
  }
  return instance
})

/** Completes the reply with the outcome; a defect is told too, so that nobody waits for ever. */
const answered = (reply: Reply, effect: Effect.Effect<void, DaemonRefused>): Effect.Effect<void> =>
  effect.pipe(
    Effect.onExit((exit) =>
      Exit.isSuccess(exit) || exit.cause.reasons.every((reason) => reason._tag === "Fail")
        ? Deferred.done(reply, exit)
        : Deferred.fail(reply, broken)
    ),
    Effect.catchTag("DaemonRefused", () => Effect.void)
  )
