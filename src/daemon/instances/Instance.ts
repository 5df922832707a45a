import { Deferred, Effect, Exit, type Fiber, Scope, Stream } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import type { ConsolePage } from "../../contract/domain/Pagination.ts"
import type { Quiesce } from "../../contract/domain/Quiesce.ts"
import type { DaemonRefused, LinesRequest } from "../../contract/nodeApi/Daemon.ts"
import { atPlace, type TracePlace, tracePlace } from "../../shared/observability/trace.ts"
import type { KeyedLock } from "../../shared/work/KeyedLock.ts"
import { type Fork, OnDemand } from "../../shared/work/OnDemand.ts"
import { type ConsoleLog, makeConsoleLog, noListener } from "../console/ConsoleLog.ts"
import type { Line } from "../console/lines.ts"
import type { IoError } from "../disk/fsio.ts"
import type { LaunchFailed, Run, RunUser } from "../runtime/Runtime.ts"
import type { InstanceFile, InstanceFileOwner, WaitingWrites } from "../state/InstanceFile.ts"
import { LiveProgress, sendProgress, sendReports } from "../uplink/ReportOutbox.ts"
import type { Uplink } from "../uplink/uplink.ts"
import { Accesses } from "./Accesses.ts"
import {
  adopt,
  define,
  destroy,
  endQuiescence,
  hold,
  isIdle,
  onEvent,
  placeFiles,
  power,
  reinstall,
  reset,
  startInTurn
} from "./instanceChanges.ts"
import type { InstanceAction } from "./powerDecision.ts"
import { quiesce } from "./quiescing.ts"
import { refuse } from "./refusals.ts"
import { serverUser } from "./serverUser.ts"
import type { InstanceParts, Serving } from "./serving.ts"

export interface InstanceOptions extends InstanceParts {
  readonly uplink: Effect.Effect<Uplink>
  readonly waitingWrites: WaitingWrites
  readonly fork: Fork
  readonly changes: KeyedLock<ServerId>
}

/** A change; `accept` answers its caller before its end. */
type Change = (it: Serving, accept: Effect.Effect<void>) => Effect.Effect<void, DaemonRefused>

type Reply = Deferred.Deferred<void, DaemonRefused>

const internalError = refuse(500, "internal error of the node", "Read the log of the node.")
const removed = (id: ServerId) =>
  refuse(404, `server not found: ${id}`, "Check whether the server still exists.")

/** Completes the reply with the outcome; a defect becomes a refusal, so that no caller waits forever. */
const replyWith = (reply: Reply, effect: Effect.Effect<void, DaemonRefused>): Effect.Effect<void> =>
  effect.pipe(
    Effect.onExit((exit) =>
      Exit.isSuccess(exit) || exit.cause.reasons.every((reason) => reason._tag === "Fail")
        ? Deferred.done(reply, exit)
        : Deferred.fail(reply, internalError)
    ),
    Effect.catchTag("DaemonRefused", () => Effect.void)
  )

/** A server of this node. An idle one is this object and its state, without fiber, timer or open console. */
export class Instance implements InstanceFileOwner {
  readonly file: InstanceFile
  readonly folder: string
  readonly accesses = new Accesses()
  readonly #options: InstanceOptions
  #serving: Serving | undefined
  #adoption: Deferred.Deferred<void> | undefined = Deferred.makeUnsafe<void>()
  #isShutDown = false
  #hasEnded = false
  readonly #sender = new OnDemand()
  #progressSender: OnDemand | undefined
  #console: ConsoleLog | undefined
  /** An unused console knows the lines of its file, until the memory is needed. */
  #lastConsole: WeakRef<ConsoleLog> | undefined
  #consoleUsers = 0
  #servingConsole: ConsoleLog | undefined

  /** Opens a server: adopts its process, continues unfinished work at a place of a trace, and sends its reports. */
  constructor(file: InstanceFile, folder: string, options: InstanceOptions, place: TracePlace) {
    this.file = file
    this.folder = folder
    this.#options = options
    file.setOwner(this)
    const onAdopted = Effect.sync(() => {
      if (this.#adoption !== undefined) Deferred.doneUnsafe(this.#adoption, Effect.void)
      this.#adoption = undefined
    })
    this.#inTurn("adoption", place, (it) => Effect.andThen(Effect.yieldNow, adopt(it, onAdopted)))
  }

  get adopted(): Effect.Effect<void> {
    return this.#adoption === undefined ? Effect.void : Deferred.await(this.#adoption)
  }

  isAdopted(): boolean {
    return this.#adoption === undefined
  }

  run(): Run | undefined {
    return this.#serving?.live?.run
  }

  /** @param by the caller, whose stop holds until the next start */
  power(action: InstanceAction, wait_seconds: number, by?: string): Effect.Effect<void, DaemonRefused> {
    return this.#request("power", (it, accept) => power(it, accept, action, wait_seconds, by))
  }

  /** Starts a server that waits for its turn; see {@link startInTurn}. */
  startInTurn(isLast: boolean): Effect.Effect<void, DaemonRefused> {
    return this.#request("start in turn", (it) => startInTurn(it, isLast))
  }

  get reset(): Effect.Effect<void, DaemonRefused> {
    return this.#request("reset", reset)
  }

  get reinstall(): Effect.Effect<void, DaemonRefused> {
    return this.#request("reinstallation", reinstall)
  }

  /** Takes a later definition: at once if the server is offline, else at its next start. */
  define(spec: ServerSpec): Effect.Effect<void, DaemonRefused> {
    return this.#request("definition", (it) => define(it, spec))
  }

  hold(held: boolean): Effect.Effect<void, DaemonRefused> {
    return this.#request("hold", (it) => hold(it, held))
  }

  /** Returns the user whose files those of a backup become. */
  get user(): Effect.Effect<RunUser | undefined, LaunchFailed> {
    return Effect.suspend(() => serverUser(this.file, this.#options.runtime))
  }

  /** Puts files in place that a task has made aside. */
  placeFiles(task: string): Effect.Effect<void, DaemonRefused> {
    return this.#request("files of a backup", (it) => placeFiles(it, task))
  }

  /** Begins to hold the server still for a backup, if it is in a state for it. */
  quiesce(how: Quiesce): Effect.Effect<void, DaemonRefused> {
    return this.#request("quiescence", (it) => quiesce(it, how))
  }

  /** Ends {@link quiesce}, and takes a definition that waited for the backup; idempotent. */
  get release(): Effect.Effect<void, DaemonRefused> {
    return this.#request("release", endQuiescence)
  }

  /** Kills the process, interrupts work on the files and refuses later calls. The folder stays. */
  get shutDown(): Effect.Effect<void, DaemonRefused> {
    return Effect.suspend(() => {
      const ended = this.#request("shutdown", (it) => {
        this.#hasEnded = true
        return destroy(it)
      })
      this.#isShutDown = true
      return Effect.andThen(
        ended,
        Effect.suspend(() => this.#console?.end ?? Effect.void)
      )
    })
  }

  get isShutDown(): boolean {
    return this.#isShutDown
  }

  /** Ends its fibers and the accesses to its files. Requires that no change is in progress. */
  get end(): Effect.Effect<void> {
    return Effect.suspend(() =>
      Effect.andThen(
        this.accesses.interrupt,
        this.#serving === undefined ? Effect.void : Scope.close(this.#serving.scope, Exit.void)
      )
    )
  }

  get stopReports(): Effect.Effect<void> {
    return Effect.suspend(() => {
      this.#progressSender ??= new OnDemand()
      return Effect.andThen(this.#sender.stop, this.#progressSender.stop)
    })
  }

  /** Ends what it does in the background. Requires that it is shut down. */
  get close(): Effect.Effect<void> {
    return Effect.andThen(this.stopReports, this.file.close)
  }

  logs(request: LinesRequest): Effect.Effect<ConsolePage, IoError> {
    return Effect.scoped(Effect.flatMap(this.#openConsole, (console) => console.page(request)))
  }

  get lines(): Effect.Effect<Stream.Stream<string>, never, Scope.Scope> {
    return Effect.suspend(() =>
      this.#isShutDown
        ? Effect.succeed(Stream.empty)
        : Effect.flatMap(this.#openConsole, (console) =>
            Effect.map(
              console.subscribe,
              Stream.map(({ text }) => text)
            )
          )
    )
  }

  /** Lines and parts of long lines that a running server prints from now on, without those that wait to be read. */
  get newLines(): Effect.Effect<Stream.Stream<Line>, IoError, Scope.Scope> {
    return Effect.flatMap(this.#openConsole, (console) =>
      Effect.andThen(console.finish(noListener), console.subscribe)
    )
  }

  onReports(): void {
    const { file } = this
    const send = Effect.flatMap(this.#options.uplink, (link) => sendReports(file, link))
    this.#start(this.#sender, () => file.get().reports.length > 0, send)
  }

  onWaiting(): void {
    this.#options.waitingWrites.update(this.file)
  }

  #onProgress(progress: LiveProgress): void {
    this.#progressSender ??= new OnDemand()
    const send = Effect.flatMap(this.#options.uplink, (link) => sendProgress(this.file, progress, link))
    this.#start(this.#progressSender, () => progress.isChanged, send)
  }

  #start(work: OnDemand, more: () => boolean, step: Effect.Effect<void>): void {
    work.start((repeated) => this.#options.fork(this.#logged(repeated)), more, step)
  }

  #logged<A>(effect: Effect.Effect<A>): Effect.Effect<A> {
    return Effect.annotateLogs(atPlace(undefined)(effect), { server_id: this.file.get().spec.id })
  }

  /** Makes a change in its turn, and waits for its reply. @error DaemonRefused also if the server is shut down */
  #request(what: string, change: Change): Effect.Effect<void, DaemonRefused> {
    const refused = Exit.fail(removed(this.file.get().spec.id))
    if (this.#isShutDown) return refused
    return Effect.flatMap(tracePlace, (place) => {
      const reply: Reply = Deferred.makeUnsafe()
      const accept = Effect.asVoid(Deferred.succeed(reply, undefined))
      const fiber = this.#inTurn(what, place, (it) => replyWith(reply, change(it, accept)))
      // If the service has stopped, the change is not made.
      fiber.addObserver(() => Deferred.doneUnsafe(reply, refused))
      return Deferred.await(reply)
    })
  }

  /** Makes a change after those before it. It is completed, also if its caller or the service ends. */
  #inTurn(what: string, place: TracePlace, use: (it: Serving) => Effect.Effect<void>): Fiber.Fiber<void> {
    const work = Effect.suspend(() => {
      if (this.#hasEnded) return Effect.void
      const it = this.#serving ?? this.#serve()
      const guarded = Effect.catchCause(use(it), (cause) => Effect.logError(`${what} failed`, cause))
      return Effect.andThen(guarded, this.#endIfIdle(it))
    })
    const turn = this.#options.changes.withLock(this.file.get().spec.id)(Effect.uninterruptible(work))
    return this.#options.fork(this.#logged(atPlace(place)(turn)))
  }

  #serve(): Serving {
    const progress = new LiveProgress(() => this.#onProgress(progress))
    const post: Serving["post"] = (what, use) => Effect.sync(() => void this.#inTurn(what, undefined, use))
    this.#serving = {
      ...this.#options,
      file: this.file,
      folder: this.folder,
      accesses: this.accesses,
      scope: Scope.makeUnsafe(),
      progress,
      console: () => {
        this.#servingConsole ??= this.#useConsole()
        return this.#servingConsole
      },
      post,
      onEvent: (event) => post(event._tag, (it) => onEvent(it, event)),
      work: undefined,
      live: undefined,
      killedLate: undefined,
      startSpan: undefined,
      failedConfigs: undefined
    }
    return this.#serving
  }

  #endIfIdle(it: Serving): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (!this.#hasEnded && !isIdle(it)) return Effect.void
      this.#serving = undefined
      if (this.#servingConsole !== undefined) this.#leaveConsole()
      this.#servingConsole = undefined
      return Scope.close(it.scope, Exit.void)
    })
  }

  get #openConsole(): Effect.Effect<ConsoleLog, never, Scope.Scope> {
    return Effect.acquireRelease(
      Effect.sync(() => this.#useConsole()),
      () => Effect.sync(() => this.#leaveConsole())
    )
  }

  #useConsole(): ConsoleLog {
    this.#consoleUsers++
    this.#console ??= this.#lastConsole?.deref() ?? makeConsoleLog(this.folder)
    return this.#console
  }

  #leaveConsole(): void {
    this.#consoleUsers--
    if (this.#consoleUsers > 0 || this.#console === undefined) return
    this.#lastConsole = new WeakRef(this.#console)
    this.#console = undefined
  }
}
