import { Deferred, Effect, type Scope, Stream } from "effect"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import type { ConsolePage } from "../../contract/domain/Pagination.ts"
import type { DaemonRefused, LinesRequest } from "../../contract/nodeApi/Daemon.ts"
import { atPlace, type TracePlace, tracePlace } from "../../shared/observability/trace.ts"
import { type Fork, OnDemand } from "../../shared/work/OnDemand.ts"
import { type ConsoleLog, makeConsoleLog } from "../console/ConsoleLog.ts"
import type { IoError } from "../disk/fsio.ts"
import type { Run } from "../runtime/Runtime.ts"
import type { InstanceFile, InstanceFileOwner, WaitingWrites } from "../state/InstanceFile.ts"
import { LiveProgress, sendProgress, sendReports } from "../uplink/ReportOutbox.ts"
import type { Uplink } from "../uplink/uplink.ts"
import { type InstanceFiber, type InstanceParts, serveInstance } from "./instanceFiber.ts"
import { type Message, type Reply, removed } from "./mailbox.ts"
import type { InstanceAction } from "./powerDecision.ts"

export interface InstanceOptions extends InstanceParts {
  readonly uplink: Effect.Effect<Uplink>
  readonly waitingWrites: WaitingWrites
  readonly fork: Fork
}

/** A server of this node. An idle one is this object and its state, without fiber, timer or open console. */
export class Instance implements InstanceFileOwner {
  readonly file: InstanceFile
  readonly folder: string
  readonly #options: InstanceOptions
  #active: InstanceFiber | undefined
  #adoption: Deferred.Deferred<void> | undefined = Deferred.makeUnsafe<void>()
  #isShutDown = false
  readonly #sender = new OnDemand()
  #progressSender: OnDemand | undefined
  #console: ConsoleLog | undefined
  #consoleUsers = 0
  /** An unused console knows the lines of its file, until the memory is needed. */
  #lastConsole: WeakRef<ConsoleLog> | undefined

  /** Opens a server: adopts its process, continues unfinished work at a place of a trace, and sends its reports. */
  constructor(file: InstanceFile, folder: string, options: InstanceOptions, place: TracePlace) {
    this.file = file
    this.folder = folder
    this.#options = options
    this.#activate(true, place)
    file.setOwner(this)
  }

  get adopted(): Effect.Effect<void> {
    return this.#adoption === undefined ? Effect.void : Deferred.await(this.#adoption)
  }

  isAdopted(): boolean {
    return this.#adoption === undefined
  }

  run(): Run | undefined {
    return this.#active?.run()
  }

  /** @param by the caller, whose stop holds until the next start */
  power(action: InstanceAction, wait_seconds: number, by?: string): Effect.Effect<void, DaemonRefused> {
    return this.#request((reply) => ({ _tag: "Power", action, wait_seconds, by, reply }))
  }

  /** Starts a server that waits for its turn; see `InstanceRun.startInTurn`. */
  startInTurn(isLast: boolean): Effect.Effect<void, DaemonRefused> {
    return this.#request((reply) => ({ _tag: "TurnCame", isLast, reply }))
  }

  get reset(): Effect.Effect<void, DaemonRefused> {
    return this.#request((reply) => ({ _tag: "Reset", reply }))
  }

  get reinstall(): Effect.Effect<void, DaemonRefused> {
    return this.#request((reply) => ({ _tag: "Reinstall", reply }))
  }

  /** Takes a later definition: at once if the server is offline, else at its next start. */
  define(spec: ServerSpec): Effect.Effect<void, DaemonRefused> {
    return this.#request((reply) => ({ _tag: "Define", spec, reply }))
  }

  hold(held: boolean): Effect.Effect<void, DaemonRefused> {
    return this.#request((reply) => ({ _tag: "Hold", held, reply }))
  }

  /** Kills the process, interrupts work on the files and refuses later calls. The folder stays. */
  get shutDown(): Effect.Effect<void, DaemonRefused> {
    return Effect.suspend(() => {
      const ended =
        this.#active === undefined && !this.#isShutDown
          ? this.#options.runtime.sweep(this.file.get().spec.id)
          : this.#request((reply) => ({ _tag: "ShutDown", reply }))
      this.#isShutDown = true
      return Effect.andThen(
        ended,
        Effect.suspend(() => this.#console?.end ?? Effect.void)
      )
    })
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
    return Effect.acquireUseRelease(
      Effect.sync(() => this.#useConsole()),
      (console) => console.page(request),
      () => Effect.sync(() => this.#leaveConsole())
    )
  }

  get lines(): Effect.Effect<Stream.Stream<string>, never, Scope.Scope> {
    return Effect.suspend(() => {
      if (this.#isShutDown) return Effect.succeed(Stream.empty)
      return Effect.acquireRelease(
        Effect.sync(() => this.#useConsole()),
        () => Effect.sync(() => this.#leaveConsole())
      ).pipe(Effect.flatMap((console) => console.subscribe))
    })
  }

  onReports(): void {
    const { file } = this
    const send = Effect.flatMap(this.#options.uplink, (link) => sendReports(file, link))
    this.#start(this.#sender, () => file.get().reports.length > 0, send)
  }

  onWaiting(): void {
    this.#options.waitingWrites.add(this.file)
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

  /** Sends a message and waits for its reply. @error DaemonRefused also if the server is shut down */
  #request(message: (reply: Reply) => Message): Effect.Effect<void, DaemonRefused> {
    const refused = Effect.fail(removed(this.file.get().spec.id))
    if (this.#isShutDown) return refused
    return Effect.flatMap(tracePlace, (place) => {
      const reply = Deferred.makeUnsafe<void, DaemonRefused>()
      const { mailbox } = this.#active ?? this.#activate(false, undefined)
      return mailbox.add(message(reply), place) ? Deferred.await(reply) : refused
    })
  }

  #activate(adopts: boolean, place: TracePlace): InstanceFiber {
    const progress = new LiveProgress(() => this.#onProgress(progress))
    let usesConsole = false
    const active = serveInstance({
      ...this.#options,
      file: this.file,
      folder: this.folder,
      console: () => {
        usesConsole = true
        return this.#useConsole()
      },
      progress,
      adopts,
      place,
      onAdopted: () => {
        if (this.#adoption !== undefined) Deferred.doneUnsafe(this.#adoption, Effect.void)
        this.#adoption = undefined
      },
      onIdle: () => {
        this.#active = undefined
        if (usesConsole) this.#leaveConsole()
      }
    })
    this.#active = active
    // The caller adds its message first. Uninterruptible: a message is completed, also when the service stops.
    const serve = Effect.uninterruptible(Effect.andThen(Effect.yieldNow, active.serve))
    const fiber = this.#options.fork(this.#logged(serve))
    // The service has stopped, and no fiber will reply.
    if (fiber.pollUnsafe() !== undefined) active.mailbox.close(this.file.get().spec.id)
    return active
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
