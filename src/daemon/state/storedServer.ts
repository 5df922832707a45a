/** How the state of a server is written: `server.json` in its folder. */
import { join } from "node:path"
import { Effect, Latch, Schema, Semaphore } from "effect"
import type { ServerSpec } from "../../domain/NodeMessages.ts"
import { type IoError, readText, writeSpared } from "../disk/fsio.ts"
import {
  newServerState,
  type ServerFile,
  type ServerFileOwner,
  type ServerState,
  ServerStateJson
} from "./ServerFile.ts"

/** The pause before a failed write is retried, and before acknowledgements alone are written, in ms. */
const PAUSE = 1000
/** The pause before {@link ServerFile.updateSoon} writes, in ms: most installations from a shared base are done by then. */
const SOON = 200
/**
 * The gap that each start of the daemon leaves in the sequence. The daemon may have sent reports whose state was never
 * written, and the control plane ignores a sequence that it has seen.
 */
const GAP = 100

const fileName = "server.json"

const encode = Schema.encodeUnknownEffect(ServerStateJson)
const decode = Schema.decodeUnknownEffect(ServerStateJson)

const write = (folder: string, state: ServerState): Effect.Effect<void, IoError> =>
  encode(state).pipe(
    Effect.orDie, // the state has the type of the schema
    Effect.flatMap((text) => writeSpared(join(folder, fileName), text))
  )

type Change = (state: ServerState) => ServerState

const same: Change = (state) => state
const noChanges: ReadonlyArray<Change> = []

/** A class, because a node has thousands: an idle server has no functions or fibers of its own. */
class StoredServer implements ServerFile {
  readonly #folder: string
  readonly #lock = Semaphore.makeUnsafe(1)
  #owner: ServerFileOwner | undefined
  #current: ServerState
  #changes = noChanges
  /** Opens with a change that is to be written soon; there only during {@link writeWaiting}. */
  #soon: Latch.Latch | undefined
  #hasFailed = false
  #hasAcknowledged = false

  constructor(folder: string, initial: ServerState) {
    this.#folder = folder
    this.#current = initial
  }

  get(): ServerState {
    return this.#current
  }

  setOwner(owner: ServerFileOwner): void {
    this.#owner = owner
    if (this.#current.reports.length > 0) owner.onReports()
    if (this.isWaiting()) owner.onWaiting()
  }

  isWaiting(): boolean {
    return this.#hasFailed || this.#hasAcknowledged || this.#changes.length > 0
  }

  update(change: Change): Effect.Effect<ServerState> {
    return this.#locked(Effect.suspend(() => this.#replace(change)))
  }

  updateSoon(change: Change): void {
    this.#changes = [...this.#changes, change]
    this.#soon?.openUnsafe()
    this.#owner?.onWaiting()
  }

  acknowledge(sequence: number): Effect.Effect<void> {
    // Locked: a write in progress replaces the current state when it ends.
    return this.#locked(
      Effect.sync(() => {
        this.#hasAcknowledged = true
        const reports = this.#current.reports.filter((report) => report.sequence !== sequence)
        this.#current = { ...this.#current, reports }
      })
    )
  }

  get flush(): Effect.Effect<void> {
    return this.#locked(Effect.ignore(Effect.suspend(() => this.#putAgain())))
  }

  get writeWaiting(): Effect.Effect<void> {
    return Effect.suspend(() => {
      const soon = Latch.makeUnsafe(this.#changes.length > 0)
      this.#soon = soon
      return Effect.raceFirst(
        Effect.sleep(PAUSE),
        Effect.as(Effect.andThen(soon.await, Effect.sleep(SOON)), "soon" as const)
      )
    }).pipe(
      Effect.flatMap((pause) => {
        this.#soon = undefined
        // An update has written the changes; acknowledgements alone wait longer.
        if (pause === "soon" && this.#changes.length === 0 && !this.#hasFailed) return Effect.void
        const written = Effect.andThen(
          Effect.suspend(() => this.#replace(same)),
          Effect.suspend(() => this.#putAgain())
        )
        return this.#locked(Effect.ignore(written))
      })
    )
  }

  #locked<A, E>(use: Effect.Effect<A, E>): Effect.Effect<A, E> {
    const ended = Effect.sync(() => {
      if (this.isWaiting()) this.#owner?.onWaiting()
    })
    return Effect.uninterruptible(this.#lock.withPermit(Effect.ensuring(use, ended)))
  }

  #put(state: ServerState): Effect.Effect<void, IoError> {
    return Effect.map(write(this.#folder, state), () => {
      this.#hasFailed = false
      this.#hasAcknowledged = false
    })
  }

  #replace(change: Change): Effect.Effect<ServerState> {
    const changed = change(this.#changes.reduce((state, one) => one(state), this.#current))
    this.#changes = noChanges
    if (changed === this.#current) return Effect.succeed(changed)
    return this.#put(changed).pipe(
      Effect.catch((error) => {
        this.#hasFailed = true
        return Effect.logError(`the state of the server cannot be written: ${error.message}`)
      }),
      Effect.map(() => {
        const more = changed.sequence > this.#current.sequence
        this.#current = changed
        if (more) this.#owner?.onReports()
        return changed
      })
    )
  }

  #putAgain(): Effect.Effect<void, IoError> {
    if (!this.#hasFailed) return this.#hasAcknowledged ? this.#put(this.#current) : Effect.void
    return Effect.andThen(this.#put(this.#current), Effect.logInfo("the state of the server is written"))
  }
}

/**
 * Writes the first state of a new server.
 * @error IoError the disk refused; the server does not exist
 */
export const createServerFile = Effect.fnUntraced(function* (folder: string, spec: ServerSpec, uid?: number) {
  const state = newServerState(spec, uid)
  yield* write(folder, state)
  const file: ServerFile = new StoredServer(folder, state)
  return file
})

/**
 * Reads the state of a server.
 * @error IoError | SchemaError the file is missing or invalid
 */
export const openServerFile = Effect.fnUntraced(function* (folder: string) {
  const state = yield* decode(yield* readText(join(folder, fileName)))
  const file: ServerFile = new StoredServer(folder, { ...state, sequence: state.sequence + GAP })
  return file
})
