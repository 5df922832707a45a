import { Effect, Layer } from "effect"
import { RateLimiter } from "effect/persistence"
import { onElapsedTime } from "../../shared/work/elapsed.ts"

const { RateLimiterStore } = RateLimiter

/** The limits of this process. Their minute is elapsed time; the library uses the wall clock. */
export const limiterStore: Layer.Layer<RateLimiter.RateLimiterStore> = Layer.effect(
  RateLimiterStore,
  Effect.map(RateLimiterStore, (store) =>
    RateLimiterStore.of({
      fixedWindow: (options) => onElapsedTime(store.fixedWindow(options)),
      tokenBucket: (options) => onElapsedTime(store.tokenBucket(options)),
      adaptiveConsume: (options) => onElapsedTime(store.adaptiveConsume(options)),
      adaptiveFeedback: (options) => onElapsedTime(store.adaptiveFeedback(options))
    })
  )
).pipe(Layer.provide(RateLimiter.layerStoreMemory))
