/** How the state of a server is written: `server.json` in its folder. */
import { join } from "node:path"
import { Effect, Schema, Semaphore } from "effect"
import type { ServerSpec } from "../../contract/domain/NodeMessages.ts"
import { type Fork, OnDemand } from "../../shared/work/OnDemand.ts"
import { type IoError, readText } from "../disk/fsio.ts"
import { writeAtomic, writeSpared } from "../disk/replaceFile.ts"
import { type InstanceState, InstanceStateJson, newInstanceState } from "./InstanceState.ts"

/** The pause before a failed write is retried, in ms. */
const RETRY = 1000
/** The pause before `updateSoon` writes, in ms: most installations from a shared base are done by then. */
const SOON = 1000
/** The pause before acknowledgements alone are written, in ms: most are part of another write by then. */
const ACKNOWLEDGED = 5000
/** The sequence gap at each start: numbers of reports whose state was never written may have been used. */
const GAP = 100

const fileName = "server.json"

const decode = Schema.decodeUnknownEffect(InstanceStateJson)

type Write = (path: string, text: string) => Effect.Effect<void, IoError>

const write = (folder: string, state: typeof InstanceState.Encoded, by: Write = writeSpared) =>
  by(join(folder, fileName), JSON.stringify(state))

type Change = (state: InstanceState) => InstanceState

const same: Change = (state) => state
const noChanges: ReadonlyArray<Change> = []

/** The owner of an {@link InstanceFile}. */
export interface InstanceFileOwner {
  /** Called when there are reports to send. */
  onReports(): void
  /** Called when {@link InstanceFile.pause} may have changed. */
  onWaiting(): void
}

/** `server.json` of one server. It is a class, because thousands would each have functions and fibers. */
export class InstanceFile {
  readonly #folder: string
  readonly #lock = Semaphore.makeUnsafe(1)
  #owner: InstanceFileOwner | undefined
  #current: InstanceState
  #changes = noChanges
  #isClosed = false
  #hasFailed = false
  #hasAcknowledged = false

  constructor(folder: string, initial: InstanceState) {
    this.#folder = folder
    this.#current = initial
  }

  get(): InstanceState {
    return this.#current
  }

  setOwner(owner: InstanceFileOwner): void {
    this.#owner = owner
    if (this.#current.reports.length > 0) owner.onReports()
    owner.onWaiting()
  }

  /** Returns the pause before waiting changes, acknowledgements or failed writes are written, in ms. */
  pause(): number | undefined {
    if (this.#isClosed) return undefined
    if (this.#hasFailed) return RETRY
    if (this.#changes.length > 0) return SOON
    return this.#hasAcknowledged ? ACKNOWLEDGED : undefined
  }

  /** Changes the state and writes it before any reader sees it. If the disk fails, memory has the state. */
  update(change: Change): Effect.Effect<InstanceState> {
    return this.#locked(Effect.suspend(() => this.#replace(change)))
  }

  /** Changes the state as {@link update} does, with the next update or a second or so later; does not wait for it. */
  updateSoon(change: Change): void {
    this.#changes = [...this.#changes, change]
    this.#owner?.onWaiting()
  }

  /** Removes acknowledged reports with a write within five seconds or so; a crash before it sends them again. */
  acknowledge(sequence: number): Effect.Effect<void> {
    // Locked: a write in progress replaces the current state when it ends.
    return this.#locked(
      Effect.sync(() => {
        this.#hasAcknowledged = true
        const reports = this.#current.reports.filter((report) => report.sequence > sequence)
        this.#current = { ...this.#current, reports }
      })
    )
  }

  get flush(): Effect.Effect<void> {
    return this.#locked(
      Effect.ignore(
        Effect.andThen(
          Effect.suspend(() => this.#replace(same)),
          Effect.suspend(() => this.#putAgain())
        )
      )
    )
  }

  /** Writes nothing more, for a folder that is removed; waits for a write in progress. */
  get close(): Effect.Effect<void> {
    return this.#locked(
      Effect.sync(() => {
        this.#isClosed = true
      })
    )
  }

  #locked<A, E>(use: Effect.Effect<A, E>): Effect.Effect<A, E> {
    const ended = Effect.sync(() => this.#owner?.onWaiting())
    return Effect.uninterruptible(this.#lock.withPermit(Effect.ensuring(use, ended)))
  }

  #put(state: InstanceState): Effect.Effect<void, IoError> {
    if (this.#isClosed) return Effect.void
    return Effect.map(write(this.#folder, state), () => {
      this.#hasFailed = false
      this.#hasAcknowledged = false
    })
  }

  #replace(change: Change): Effect.Effect<InstanceState> {
    const before = this.#current
    const changed = change(this.#changes.reduce((state, one) => one(state), before))
    this.#changes = noChanges
    if (changed === before) return Effect.succeed(changed)
    return this.#put(changed).pipe(
      Effect.catch((error) => {
        this.#hasFailed = true
        return Effect.logError(`the state of the server cannot be written: ${error.message}`)
      }),
      Effect.map(() => {
        this.#current = changed
        if (changed.sequence > before.sequence) this.#owner?.onReports()
        return changed
      })
    )
  }

  #putAgain(): Effect.Effect<void, IoError> {
    if (!this.#hasFailed) return this.#hasAcknowledged ? this.#put(this.#current) : Effect.void
    return Effect.andThen(this.#put(this.#current), Effect.logInfo("the state of the server is written"))
  }
}

/** The time between two looks at the servers that wait, in ms. */
const LOOK = 250
/** Writes at a time. */
const CONCURRENT = 16

/** Writes the states of servers that wait, with one fiber for all servers of a node, while there are any. */
export class WaitingWrites {
  readonly #fork: Fork
  readonly #waiting = new Map<InstanceFile, { readonly pause: number; readonly until: number }>()
  readonly #work = new OnDemand()

  constructor(fork: Fork) {
    this.#fork = fork
  }

  /** Begins a pause if there is another reason to write than before. */
  update(file: InstanceFile): void {
    const pause = file.pause()
    if (pause === this.#waiting.get(file)?.pause) return
    if (pause === undefined) {
      this.#waiting.delete(file)
      return
    }
    this.#waiting.set(file, { pause, until: performance.now() + pause })
    this.#work.start(this.#fork, () => this.#waiting.size > 0, Effect.delay(this.#writeDue, LOOK))
  }

  get #writeDue(): Effect.Effect<void> {
    return Effect.suspend(() => {
      const now = performance.now()
      const due = [...this.#waiting].flatMap(([file, { until }]) => (until <= now ? [file] : []))
      for (const file of due) this.#waiting.delete(file)
      const written = (file: InstanceFile) =>
        Effect.annotateLogs(file.flush, { server_id: file.get().spec.id })
      return Effect.forEach(due, written, { concurrency: CONCURRENT, discard: true })
    })
  }
}

/** Writes the first state of a new server. @error IoError the disk refused; the server does not exist */
export const createInstanceFile = Effect.fnUntraced(function* (
  folder: string,
  spec: ServerSpec,
  uid?: number
) {
  const state = newInstanceState(spec, uid)
  // The next write makes the spare: the end of the installation, which needs room anyway.
  yield* write(folder, state, writeAtomic)
  return new InstanceFile(folder, state)
})

/** Changes the state of a server that is not open. @error IoError | SchemaError nothing is changed */
export const rewriteInstanceFile = Effect.fnUntraced(function* (folder: string, change: Change) {
  const state = yield* decode(yield* readText(join(folder, fileName)))
  yield* write(folder, change(state), writeAtomic)
})

/** Reads the state of a server. @error IoError | SchemaError the file is missing or invalid */
export const openInstanceFile = Effect.fnUntraced(function* (folder: string) {
  const state = yield* decode(yield* readText(join(folder, fileName)))
  return new InstanceFile(folder, { ...state, sequence: state.sequence + GAP })
})
