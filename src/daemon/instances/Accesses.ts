/** The accesses of callers to the files of one instance (spec 10.3), which never hold up work on these files. */
import { Clock, Deferred, Effect, Exit, Scope, Stream } from "effect"
import type { DaemonRefused } from "../../contract/nodeApi/Daemon.ts"
import { FileRefused } from "../../contract/nodeApi/NodeFiles.ts"
import { elapsedMillisOf } from "../../shared/work/elapsed.ts"

interface Running {
  /** Fails once work on the files begins, or the caller no longer reads. */
  readonly cut: Deferred.Deferred<never, FileRefused>
  readonly scope: Scope.Closeable
  /** Ends the access; returns once it uses no file any more. */
  readonly end: (why: FileRefused) => Effect.Effect<void>
}

const interrupted = new FileRefused({
  status: 409,
  detail: "the access was interrupted: the node works on the files of the server",
  hint: "Wait until the server is offline or running, then try again."
})

const stalled = new FileRefused({
  status: 409,
  detail: "the transfer was ended: no byte was read for 60 s",
  hint: "Read faster, or continue at the byte that was reached."
})

/** Archives that are read from one server at a time: each has its own buffers, and a zip archive its directory. */
export const MOST_ARCHIVES = 4

const tooManyArchives = new FileRefused({
  status: 409,
  detail: `the server has ${MOST_ARCHIVES} archives that are read`,
  hint: "Wait until one of them has ended, then try again."
})

/** Longest time between two reads of a stream, in ms. */
const STALL_MILLIS = 60_000

export class Accesses {
  readonly #running = new Set<Running>()
  readonly #stallMillis: number
  #archives = 0
  /** The task that has the files for itself, as refusals of other tasks name it; unset unless there is one. */
  exclusive: string | undefined
  /** Why neither callers nor a start may use the files meanwhile; unset unless a task replaces them (spec 12.5). */
  closed: string | undefined

  constructor(stallMillis = STALL_MILLIS) {
    this.#stallMillis = stallMillis
  }

  get count(): number {
    return this.#running.size
  }

  /** Interrupts all accesses and returns once they use no file. Requires that later ones are refused by their check. */
  get interrupt(): Effect.Effect<void> {
    return Effect.suspend(() =>
      Effect.forEach([...this.#running], ({ end }) => end(interrupted), {
        concurrency: "unbounded",
        discard: true
      })
    )
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

  /** Runs an access that returns a stream. The scope of the caller, or work on the files, ends it. */
  stream<A, E, E2, R>(
    refused: () => DaemonRefused | undefined,
    use: Effect.Effect<Stream.Stream<A, E>, E2, R>
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
      Effect.raceFirst(Scope.provide(use, running.scope), Deferred.await(running.cut)).pipe(
        Effect.flatMap((stream) => this.#watched(running, stream))
      )
    )
  }

  /** Takes one of the places of archives until the scope ends. @error FileRefused 409 none is left */
  get archivePlace(): Effect.Effect<void, FileRefused, Scope.Scope> {
    const take = Effect.suspend(() => {
      if (this.#archives >= MOST_ARCHIVES) return Effect.fail(tooManyArchives)
      this.#archives += 1
      return Effect.void
    })
    const giveBack = Effect.sync(() => {
      this.#archives -= 1
    })
    return Effect.acquireRelease(take, () => giveBack)
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
      let readAt = now()
      let isReading = false
      const watch = Effect.gen(function* () {
        for (;;) {
          const left = isReading ? limit : readAt + limit - now()
          if (left <= 0) return yield* running.end(stalled)
          yield* Effect.sleep(left)
        }
      })
      yield* Effect.forkScoped(watch)
      // `Stream.interruptWhen` would read ahead, and pieces may share memory.
      return Stream.transformPull(stream, (pull) =>
        Effect.succeed(
          Effect.suspend(() => {
            isReading = true
            return Effect.ensuring(
              Effect.raceFirst(Deferred.await(running.cut), pull),
              Effect.sync(() => {
                isReading = false
                readAt = now()
              })
            )
          })
        )
      )
    })
  }
}
