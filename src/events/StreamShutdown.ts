import { Context, Effect, Layer } from "effect"

/** Ends open streams before the HTTP server stops, which waits for its connections. */
export class StreamShutdown extends Context.Service<
  StreamShutdown,
  {
    /** Asks every open and every later stream to end. */
    readonly begin: Effect.Effect<void>
    /** Calls `end` at `begin`, at once if it has begun; returns how to remove it. A waiting fiber would cost a kilobyte. */
    onBegin(end: () => void): () => void
    /** Waits for `begin`. */
    readonly begun: Effect.Effect<void>
  }
>()("muster/events/StreamShutdown") {
  static readonly layer = Layer.sync(StreamShutdown, () => {
    const listeners = new Set<() => void>()
    let hasBegun = false
    const onBegin = (end: () => void) => {
      if (hasBegun) end()
      else listeners.add(end)
      return () => void listeners.delete(end)
    }
    return StreamShutdown.of({
      begin: Effect.sync(() => {
        hasBegun = true
        for (const end of listeners) end()
      }),
      onBegin,
      begun: Effect.callback<void>((resume) => Effect.sync(onBegin(() => resume(Effect.void))))
    })
  })

  /** Begins when this layer is released. Build it after the server, so that it is released first. */
  static readonly onRelease: Layer.Layer<never, never, StreamShutdown> = Layer.effectDiscard(
    Effect.gen(function* () {
      const { begin } = yield* StreamShutdown
      yield* Effect.addFinalizer(() => begin)
    })
  )
}
