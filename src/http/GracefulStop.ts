import type { Server } from "node:http"
import { Context, Duration, Effect, Layer } from "effect"
import { StreamShutdown } from "../events/StreamShutdown.ts"
import { connectionsOf } from "./connections.ts"

/** How long requests and streams that are under way may take to end: longer than any request may. */
const LONGEST = Duration.seconds(32)
/** A request may be on its way on a connection that looks idle. */
const ON_ITS_WAY = Duration.millis(50)
/** How long a connection without any request may take to begin one. */
const UNUSED = Duration.millis(500)

/**
 * How the HTTP server ends: first it says so at `readyz` and goes on, so that load balancers turn elsewhere; then
 * nobody can connect any more, streams end politely, and requests that are under way are answered.
 */
export class GracefulStop extends Context.Service<
  GracefulStop,
  {
    /** Whether the service is about to end. */
    readonly isStopping: () => boolean
    /** From now on the service is about to end. */
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
   * Ends the server when this layer is released: build it after the routes, so that they are there until the end.
   *
   * @param server        before it listens
   * @param options.grace how long it goes on after it has said that it ends
   */
  static readonly onRelease = (
    server: Server,
    options: { readonly grace: Duration.Duration }
  ): Layer.Layer<never, never, GracefulStop | StreamShutdown> => {
    const connections = connectionsOf(server)
    return Layer.effectDiscard(
      Effect.gen(function* () {
        const { announce } = yield* GracefulStop
        const streams = yield* StreamShutdown
        const { grace } = options
        const seconds = Duration.toSeconds(grace)

        const rest = Effect.gen(function* () {
          if ((yield* connections.open) === 0) return
          yield* Effect.sleep(ON_ITS_WAY)
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
            yield* streams.begin
            yield* Effect.timeoutOrElse(Effect.interruptible(rest), {
              duration: LONGEST,
              orElse: () =>
                Effect.flatMap(connections.open, (open) =>
                  Effect.logWarning(`${open} connections did not end in time: they are cut`)
                )
            })
            yield* connections.destroyAll
          })
        )
      })
    )
  }
}
