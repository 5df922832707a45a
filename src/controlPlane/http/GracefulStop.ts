import { Context, Duration, Effect, Layer } from "effect"
import type { Unavailable } from "../../contract/domain/errors.ts"
import { HttpConnections } from "./node/connectionLimit.ts"

/** Time in which requests and streams in progress end; longer than the timeout of a request. */
const LONGEST = Duration.seconds(32)
/** Time in which a request arrives on a connection that seems idle. */
const IN_TRANSIT = Duration.millis(50)
/** Time in which a new connection begins its first request. */
const UNUSED = Duration.millis(500)

/**
 * First `readyz` fails while the server continues, so that load balancers choose another replica. Then the server
 * accepts no connection, streams end, and requests in progress complete.
 */
export class GracefulStop extends Context.Service<
  GracefulStop,
  {
    readonly isStopping: () => boolean
    readonly announce: Effect.Effect<void>
  }
>()("muster/http/GracefulStop") {
  static readonly layer = Layer.sync(GracefulStop, () => {
    let stopping = false
    return GracefulStop.of({
      isStopping: () => stopping,
      announce: Effect.sync(() => {
        stopping = true
      })
    })
  })

  /**
   * Shuts the server down when this layer is released. Build it after the routes, which are then released later.
   * @param options.grace      time between the failing `readyz` and the end
   * @param options.endStreams ends open streams, for which the server would wait
   */
  static readonly onRelease = (options: {
    readonly grace: Duration.Duration
    readonly endStreams: Effect.Effect<void>
  }): Layer.Layer<never, never, GracefulStop | HttpConnections> =>
    Layer.effectDiscard(
      Effect.gen(function* () {
        const { announce } = yield* GracefulStop
        const connections = yield* HttpConnections
        const { endStreams, grace } = options
        const seconds = Duration.toSeconds(grace)

        const rest = Effect.gen(function* () {
          if (connections.open() === 0) return
          yield* Effect.sleep(IN_TRANSIT)
          yield* connections.endIdle
          yield* Effect.raceFirst(connections.closed, Effect.sleep(UNUSED))
          yield* connections.endUnused
          yield* connections.endIdle
          yield* connections.closed
        })

        yield* Effect.addFinalizer(() =>
          Effect.gen(function* () {
            yield* announce
            yield* Effect.logInfo(
              seconds === 0 ? "shutting down" : `shutting down: no new connections after ${seconds} s`
            )
            yield* connections.closeIdle
            yield* Effect.sleep(grace)
            yield* connections.stopListening
            yield* endStreams
            yield* Effect.timeoutOrElse(Effect.interruptible(rest), {
              duration: LONGEST,
              orElse: () =>
                Effect.logWarning(`${connections.open()} connections cut off: they did not end in time`)
            })
            yield* connections.destroyAll
          })
        )
      })
    )
}

/** While the server listens, requests wait for `done`, except on routes with `AnswersEarly`. */
export const Started = Context.Reference<{
  readonly isDone: () => boolean
  /** Waits until the start has succeeded or failed. @error Unavailable the start takes long */
  readonly done: Effect.Effect<void, Unavailable>
}>("muster/http/Started", { defaultValue: () => ({ isDone: () => true, done: Effect.void }) })
