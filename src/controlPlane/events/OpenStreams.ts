import { Context, Effect, Latch, Layer, Scope } from "effect"
import { Tally } from "../../shared/work/Tally.ts"
import { CurrentPrincipal } from "../http/Principal.ts"
import { LimitReached } from "../http/rateLimit.ts"

/** Milliseconds after which a refused client may try again. */
const RETRY_AFTER = 5000

export interface StreamLimits {
  readonly perKey: number
  readonly total: number
}

const make = ({ perKey, total }: StreamLimits) => {
  const byKey = new Tally<string>()
  let open = 0

  const add = (key: string) =>
    Effect.suspend(() => {
      const own = byKey.of(key)
      if (own >= perKey) {
        return new LimitReached({
          detail: `the API key has ${own} open streams`,
          hint: "Close streams, or share one among several readers. MUSTER_STREAMS_PER_KEY sets the limit.",
          limit: perKey,
          resetAfter: RETRY_AFTER
        })
      }
      if (open >= total) {
        return new LimitReached({
          detail: `the service has ${open} open streams`,
          hint: "Try again later. MUSTER_STREAMS and the service's limit of open files set the limit.",
          limit: total,
          resetAfter: RETRY_AFTER
        })
      }
      byKey.add(key)
      open += 1
      return Effect.void
    })
  const release = (key: string) =>
    Effect.sync(() => {
      byKey.remove(key)
      open -= 1
    })
  /**
   * Takes a place for a stream of the caller until the scope closes. A ticket's stream counts for its key.
   * @error LimitReached no place is left
   */
  const take = Effect.flatMap(CurrentPrincipal, (principal) => {
    const key = principal?.key_id ?? ""
    // `acquireRelease` would hold the whole context of the request.
    return Effect.uninterruptible(
      Effect.andThen(
        add(key),
        Effect.flatMap(Effect.scope, (scope) => Scope.addFinalizer(scope, release(key)))
      )
    )
  })
  return { take, count: Effect.sync(() => open) }
}

/** Counts event streams and consoles, over SSE and WebSocket, and bounds them per key and in total. */
export class OpenStreams extends Context.Service<OpenStreams, ReturnType<typeof make>>()(
  "muster/events/OpenStreams"
) {
  static readonly layer = (limits: StreamLimits) => Layer.sync(OpenStreams, () => make(limits))
}

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
