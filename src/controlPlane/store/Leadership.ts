import { Cause, Context, Effect, Latch, Layer, type Scope } from "effect"
import type { Unavailable } from "../../contract/domain/errors.ts"

/** Between a failure of the leader's work and its restart. */
const PAUSE = "1 second"

/** Elects the replica for background work. For a moment two may lead, so work must bear to run twice. */
export class Leadership extends Context.Service<
  Leadership,
  {
    /** Whether only one process can use the database: it is always the leader. */
    readonly isSingle: boolean
    /** Whether no other process used the database when this one started: no heartbeats arrived before. */
    readonly isFirst: boolean
    /** Whether another service uses the database now. */
    readonly othersServe: Effect.Effect<boolean, Unavailable>
    /** Whether this process leads now. It has then followed the journal up to the begin of its term. */
    readonly isLeader: Effect.Effect<boolean>
    /**
     * Runs `work` during each term, until the caller's scope closes; the end of the term interrupts it. Completed
     * work runs again in the next term; failed work is logged and restarts after a second.
     */
    whileLeader<E, R>(
      work: Effect.Effect<void, E, R>
    ): Effect.Effect<void, never, Exclude<R, Scope.Scope> | Scope.Scope>
  }
>()("muster/store/Leadership") {
  /** For a database with one service. */
  static readonly layerSingle = Layer.succeed(
    Leadership,
    Leadership.of({
      isSingle: true,
      isFirst: true,
      othersServe: Effect.succeed(false),
      isLeader: Effect.succeed(true),
      whileLeader: (work) => Effect.asVoid(Effect.forkScoped(persistently(work), { startImmediately: true }))
    })
  )
}

const persistently = <E, R>(
  work: Effect.Effect<void, E, R>
): Effect.Effect<void, never, Exclude<R, Scope.Scope>> =>
  Effect.scoped(work).pipe(
    Effect.as(true),
    Effect.catchCause((cause) =>
      Cause.hasInterruptsOnly(cause)
        ? Effect.interrupt
        : Effect.logError("background work failed, restarting", cause).pipe(
            Effect.andThen(Effect.sleep(PAUSE)),
            Effect.as(false)
          )
    ),
    Effect.repeat({ until: (done) => done }),
    Effect.asVoid
  )

/** The terms of this process as the leader. */
export class LeaderTerm {
  #mine = false
  readonly #begun = Latch.makeUnsafe(false)
  readonly #over = Latch.makeUnsafe(true)

  get isLeader(): boolean {
    return this.#mine
  }

  begin(): void {
    this.#mine = true
    this.#over.closeUnsafe()
    this.#begun.openUnsafe()
  }

  end(): void {
    this.#mine = false
    this.#begun.closeUnsafe()
    this.#over.openUnsafe()
  }

  readonly whileLeader: Leadership["Service"]["whileLeader"] = (work) =>
    this.#begun.await.pipe(
      Effect.andThen(Effect.raceFirst(Effect.andThen(persistently(work), Effect.never), this.#over.await)),
      Effect.forever,
      Effect.forkScoped({ startImmediately: true }),
      Effect.asVoid
    )
}
