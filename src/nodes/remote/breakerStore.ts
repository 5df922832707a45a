import { Effect, Layer } from "effect"
import { CircuitBreaker } from "effect/persistence"
import { onElapsedTime } from "../../domain/elapsed.ts"

const { CircuitBreakerStore } = CircuitBreaker

/** Circuits of this process. How long one is open is elapsed time: the library reckons it by the wall clock. */
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
