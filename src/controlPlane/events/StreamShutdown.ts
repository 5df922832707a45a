import { Context, Effect, Latch, Layer } from "effect"

/** Ends open streams before the HTTP server stops, which waits for its connections. */
export class StreamShutdown extends Context.Service<
  StreamShutdown,
  {
    readonly begin: Effect.Effect<void>
    readonly begun: Effect.Effect<void>
  }
>()("muster/events/StreamShutdown") {
  static readonly layer = Layer.sync(StreamShutdown, () => {
    const begun = Latch.makeUnsafe(false)
    return StreamShutdown.of({ begin: begun.open, begun: begun.await })
  })

  /** Begins when this layer is released. Build it after the server, so that it is released first. */
  static readonly onRelease: Layer.Layer<never, never, StreamShutdown> = Layer.effectDiscard(
    Effect.gen(function* () {
      const { begin } = yield* StreamShutdown
      yield* Effect.addFinalizer(() => begin)
    })
  )
}
