import { Cause, Context, Effect, Latch, Layer, type Scope } from "effect"
import type { Unavailable } from "../domain/errors.ts"

/** Between a failure of a duty's work and its next beginning. */
const PAUSE = "1 second"

/**
 * Which of several replicas does the background duties. For a moment after a connection was lost two may think that
 * they do: a duty must bear being done twice.
 */
export class Leadership extends Context.Service<
  Leadership,
  {
    /** Whether this process is the only one on its database: then it does them always. */
    readonly isSingle: boolean
    /** Whether no other process was on the database when this one came: nobody has heard its nodes meanwhile. */
    readonly isFirst: boolean
    /** Whether another process serves on the database now. */
    readonly othersServe: Effect.Effect<boolean, Unavailable>
    /** Whether this process does them now. What it knows of the journal is then what was committed when its turn began. */
    readonly isLeader: Effect.Effect<boolean>
    /**
     * Runs `work`, in a scope of its own, whenever this process does the duties, and interrupts it when it does them no
     * more, until the caller's scope closes. Work that ends by itself is done anew with the next turn; a failure is
     * logged, and it begins again after a second. Whatever it does that must not be done by two checks {@link isLeader}.
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

/** Runs work to its end, again and again while it fails. */
const persistently = <E, R>(
  work: Effect.Effect<void, E, R>
): Effect.Effect<void, never, Exclude<R, Scope.Scope>> =>
  Effect.scoped(work).pipe(
    Effect.as(true),
    Effect.catchCause((cause) =>
      Cause.hasInterruptsOnly(cause)
        ? Effect.interrupt
        : Effect.logError("a background duty has failed, it begins again", cause).pipe(
            Effect.andThen(Effect.sleep(PAUSE)),
            Effect.as(false)
          )
    ),
    Effect.repeat({ until: (done) => done }),
    Effect.asVoid
  )

/** Whether it is this process's turn, and what is done while it is. */
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

  /** {@link Leadership.whileMine} */
  readonly whileLeader: Leadership["Service"]["whileLeader"] = (work) =>
    this.#begun.await.pipe(
      Effect.andThen(Effect.raceFirst(Effect.andThen(persistently(work), Effect.never), this.#over.await)),
      Effect.forever,
      Effect.forkScoped({ startImmediately: true }),
      Effect.asVoid
    )
}
