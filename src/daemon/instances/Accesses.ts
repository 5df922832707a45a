/** The accesses of callers to the files of one instance (spec 10.3), which never hold up work on these files. */
import { Clock, Deferred, Effect, Exit, Option, Scope, Semaphore, Stream } from "effect"
import type { DaemonRefused } from "../../contract/nodeApi/Daemon.ts"
import { FileRefused, MOST_ARCHIVES, MOST_SEARCHES } from "../../contract/nodeApi/NodeFiles.ts"
import { elapsedMillisOf } from "../../shared/work/elapsed.ts"

interface Running {
  /** Fails once work on the files begins, or the caller no longer reads. */
  readonly cut: Deferred.Deferred<never, FileRefused>
  readonly scope: Scope.Closeable
  /** Ends the access; returns once it uses no file any more. */
  readonly end: (why: FileRefused) => Effect.Effect<void>
  /** The time since which nothing reads the stream; unset while something does. */
  unreadSince?: number
}

const interrupted = new FileRefused({
  status: 409,
  detail: "the access was interrupted: the node works on the files of the server",
  hint: "Wait until the server is offline or running, then try again."
})

const claimed = (by: string) =>
  new FileRefused({
    status: 409,
    detail: `${by} runs on the server`,
    hint: "Wait until it has ended, or cancel it."
  })

const stalled = new FileRefused({
  status: 409,
  detail: "the transfer was ended: no byte was read for 60 s",
  hint: "Read faster, or continue at the byte that was reached."
})

/** Of {@link MOST_ARCHIVES}, those that are packed on the node, so that a download finds a place beside hours of packing. */
const MOST_PACKING = 2

const tooManyArchives = new FileRefused({
  status: 429,
  detail: `the server has ${MOST_ARCHIVES} archives that are downloaded or packed`,
  hint: "Wait until one of them has ended, then try again."
})

const tooManySearches = new FileRefused({
  status: 429,
  detail: `the server has ${MOST_SEARCHES} searches that run`,
  hint: "Wait until one of them has ended, then try again."
})

const replaced = new FileRefused({
  status: 409,
  detail: "the transfer was ended: nothing read it, and another archive needed its place",
  hint: "Begin the archive again."
})

/** Longest time between two reads of a stream, in ms. */
const STALL_MILLIS = 60_000

/** Time without a read, in ms, after which a download makes room for another one. */
const IDLE_MILLIS = 5_000

export class Accesses {
  readonly #running = new Set<Running>()
  readonly #stallMillis: number
  readonly #idleMillis: number
  readonly #archives = Semaphore.makeUnsafe(MOST_ARCHIVES)
  readonly #packs = Semaphore.makeUnsafe(MOST_PACKING)
  readonly #searches = Semaphore.makeUnsafe(MOST_SEARCHES)
  readonly #downloads = new Set<Running>()
  /** The task that has the files for itself, as refusals of other tasks name it; unset unless there is one. */
  exclusive: string | undefined
  /** Why neither callers nor a start may use the files meanwhile; unset unless a task replaces them (spec 12.5). */
  closed: string | undefined
  /** Completes or undoes what interrupted accesses have left. */
  tidy: Effect.Effect<void> = Effect.void

  constructor({ idleMillis = IDLE_MILLIS, stallMillis = STALL_MILLIS } = {}) {
    this.#stallMillis = stallMillis
    this.#idleMillis = idleMillis
  }

  /** Gives a task the files for itself. @error FileRefused 409 another one has them */
  claim(by: string): Effect.Effect<void, FileRefused> {
    return Effect.suspend(() => {
      const { exclusive } = this
      if (exclusive !== undefined) return Effect.fail(claimed(exclusive))
      this.exclusive = by
      return Effect.void
    })
  }

  get count(): number {
    return this.#running.size
  }

  /** Interrupts all accesses and returns once they have left nothing. Requires that later ones are refused by their check. */
  get interrupt(): Effect.Effect<void> {
    return Effect.suspend(() =>
      Effect.forEach([...this.#running], ({ end }) => end(interrupted), {
        concurrency: "unbounded",
        discard: true
      })
    ).pipe(Effect.andThen(Effect.suspend(() => this.tidy)))
  }

  /**
   * Runs an access unless `refused` returns a reason, which is asked when the access counts as running.
   * @error FileRefused 409 if work on the files begins meanwhile
   */
  run<A, E, R>(
    refused: () => DaemonRefused | undefined,
    use: Effect.Effect<A, E, R>
  ): Effect.Effect<A, E | DaemonRefused | FileRefused, Exclude<R, Scope.Scope>> {
    const ended = Deferred.makeUnsafe<void>()
    const begun = this.#begin(refused, ({ cut }, why) =>
      Effect.andThen(Deferred.fail(cut, why), Deferred.await(ended))
    )
    return Effect.uninterruptibleMask((restore) =>
      Effect.flatMap(begun, ({ cut, scope }) =>
        restore(Effect.raceFirst(Scope.provide(use, scope), Deferred.await(cut))).pipe(
          Effect.onExit((exit) =>
            Effect.andThen(Scope.close(scope, exit), Deferred.succeed(ended, undefined))
          )
        )
      )
    )
  }

  /**
   * Runs an access that returns a stream. The scope of the caller, or work on the files, ends it.
   * @param isArchive whether the stream is an archive, of which a server has few at a time
   */
  stream<A, E, E2, R>(
    refused: () => DaemonRefused | undefined,
    use: Effect.Effect<Stream.Stream<A, E>, E2, R>,
    isArchive = false
  ): Effect.Effect<
    Stream.Stream<A, E | FileRefused>,
    E2 | DaemonRefused | FileRefused,
    Exclude<R, Scope.Scope> | Scope.Scope
  > {
    const begun = this.#begin(refused, ({ cut, scope }, why) =>
      // A caller that reads slowly does not hold up the end: the files are closed at once.
      Effect.andThen(Deferred.fail(cut, why), Scope.close(scope, Exit.void))
    )
    const made = Effect.acquireRelease(begun, ({ scope }, exit) => Scope.close(scope, exit))
    return Effect.flatMap(made, (running) =>
      (isArchive ? this.#takePlace(running) : Effect.void).pipe(
        Effect.andThen(Effect.raceFirst(Scope.provide(use, running.scope), Deferred.await(running.cut))),
        Effect.flatMap((stream) => this.#watched(running, stream))
      )
    )
  }

  /** Runs a search. @error FileRefused 429 too many run */
  searching<A, E, R>(search: Effect.Effect<A, E, R>): Effect.Effect<A, E | FileRefused, R> {
    return Effect.flatMap(this.#searches.withPermitsIfAvailable(1)(search), (found) =>
      Option.isSome(found) ? Effect.succeed(found.value) : Effect.fail(tooManySearches)
    )
  }

  /** Packs an archive once one of the places of archives is free. */
  packing<A, E, R>(pack: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> {
    return this.#packs.withPermit(this.#archives.withPermit(pack))
  }

  /** Takes a place for a download until its scope ends. @error FileRefused 429 none is left */
  #takePlace(running: Running): Effect.Effect<void, FileRefused> {
    const take = this.#archives.takeIfAvailable(1)
    const giveBack = Effect.suspend(() => {
      this.#downloads.delete(running)
      return this.#archives.release(1)
    })
    const taken = Effect.flatMap(take, (isFree) =>
      isFree ? Effect.succeed(true) : Effect.andThen(this.#endUnread, take)
    )
    return Effect.uninterruptible(
      Effect.flatMap(taken, (isTaken) => {
        if (!isTaken) return Effect.fail(tooManyArchives)
        this.#downloads.add(running)
        return Scope.addFinalizer(running.scope, giveBack)
      })
    )
  }

  /** Ends the download that nothing has read for the longest time, if that is too long. */
  get #endUnread(): Effect.Effect<void> {
    return Effect.flatMap(Clock.Clock, (clock) => {
      const latest = elapsedMillisOf(clock) - this.#idleMillis
      const [longest] = [...this.#downloads]
        .filter(({ unreadSince = Number.POSITIVE_INFINITY }) => unreadSince <= latest)
        .toSorted(({ unreadSince: one = 0 }, { unreadSince: other = 0 }) => one - other)
      return longest === undefined ? Effect.void : longest.end(replaced)
    })
  }

  #begin(
    refused: () => DaemonRefused | undefined,
    end: (running: Running, why: FileRefused) => Effect.Effect<void>
  ): Effect.Effect<Running, DaemonRefused> {
    return Effect.suspend(() => {
      const why = refused()
      if (why !== undefined) return Effect.fail(why)
      const running: Running = {
        cut: Deferred.makeUnsafe(),
        scope: Scope.makeUnsafe(),
        end: (why) => end(running, why)
      }
      this.#running.add(running)
      return Effect.as(
        Scope.addFinalizer(
          running.scope,
          Effect.sync(() => this.#running.delete(running))
        ),
        running
      )
    })
  }

  /** Ends a stream that nothing reads for a while. */
  #watched<A, E>(
    running: Running,
    stream: Stream.Stream<A, E>
  ): Effect.Effect<Stream.Stream<A, E | FileRefused>, never, Scope.Scope> {
    const limit = this.#stallMillis
    return Effect.gen(function* () {
      const clock = yield* Clock.Clock
      const now = () => elapsedMillisOf(clock)
      running.unreadSince = now()
      const watch = Effect.gen(function* () {
        for (;;) {
          const left = (running.unreadSince ?? now()) + limit - now()
          if (left <= 0) return yield* running.end(stalled)
          yield* Effect.sleep(left)
        }
      })
      yield* Effect.forkScoped(watch)
      // `Stream.interruptWhen` would read ahead, and pieces may share memory.
      return Stream.transformPull(stream, (pull) =>
        Effect.succeed(
          Effect.suspend(() => {
            delete running.unreadSince
            return Effect.ensuring(
              Effect.raceFirst(Deferred.await(running.cut), pull),
              Effect.sync(() => {
                running.unreadSince = now()
              })
            )
          })
        )
      )
    })
  }
}
