import { Context, Effect, Layer, Scope } from "effect"
import { Tally } from "../../shared/work/Tally.ts"
import { CurrentPrincipal } from "../http/Principal.ts"
import { LimitReached } from "../http/rateLimit.ts"

/** Milliseconds after which a refused client may try again. */
const RETRY_AFTER = 5000

export interface StreamLimits {
  readonly perKey: number
  readonly total: number
}

/** Counts event streams and consoles, over SSE and WebSocket, and bounds them per key and in total. */
export class OpenStreams extends Context.Service<
  OpenStreams,
  {
    /**
     * Takes a place for a stream of the caller until the scope closes. A ticket's stream counts for its key.
     * @error LimitReached no place is left
     */
    readonly take: Effect.Effect<void, LimitReached, Scope.Scope>
    readonly count: Effect.Effect<number>
  }
>()("muster/events/OpenStreams") {
  static readonly layer = ({ perKey, total }: StreamLimits): Layer.Layer<OpenStreams> =>
    Layer.sync(OpenStreams, () => {
      const byKey = new Tally<string>()
      let open = 0

      const take = (key: string) =>
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

      return OpenStreams.of({
        take: Effect.flatMap(CurrentPrincipal, (principal) => {
          const key = principal?.key_id ?? ""
          // `acquireRelease` would hold the whole context of the request.
          return Effect.uninterruptible(
            Effect.andThen(
              take(key),
              Effect.flatMap(Effect.scope, (scope) => Scope.addFinalizer(scope, release(key)))
            )
          )
        }),
        count: Effect.sync(() => open)
      })
    })
}
