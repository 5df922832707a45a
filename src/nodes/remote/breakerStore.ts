import { Effect, Layer } from "effect"
import { CircuitBreaker } from "effect/persistence"
import { onElapsedTime } from "../../domain/elapsed.ts"

const { CircuitBreakerStore } = CircuitBreaker

/** The circuits of this process. Their open time is elapsed time; the library uses the wall clock. */
export const breakerStore: Layer.Layer<CircuitBreaker.CircuitBreakerStore> = Layer.effect(
  CircuitBreakerStore,
  Effect.map(CircuitBreakerStore, (store) =>
    CircuitBreakerStore.of({
      admit: (key) => onElapsedTime(store.admit(key)),
      record: (options) => onElapsedTime(store.record(options)),
      state: (key) => onElapsedTime(store.state(key))
    })
  )
).pipe(Layer.provide(CircuitBreaker.layerStoreMemory()))
