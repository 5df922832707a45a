import { Effect, Semaphore } from "effect"

/** Bounds how many effects of one key run at a time, in the order of their calls; keys do not wait for each other. */
export interface KeyedLock<K extends string = string> {
  withLock(key: K): <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
}

/**
 * Makes a lock that keeps no state of a key that is neither held nor waited for.
 *
 * @param permits effects of one key that run at a time; one makes it a mutex
 */
export const makeKeyedLock = <K extends string = string>(permits = 1): KeyedLock<K> => {
  const slots = new Map<K, { readonly semaphore: Semaphore.Semaphore; users: number }>()
  return {
    withLock: (key) => (effect) =>
      Effect.acquireUseRelease(
        Effect.sync(() => {
          const slot = slots.get(key) ?? { semaphore: Semaphore.makeUnsafe(permits), users: 0 }
          slots.set(key, slot)
          slot.users += 1
          return slot
        }),
        (slot) => slot.semaphore.withPermit(effect),
        (slot) =>
          Effect.sync(() => {
            slot.users -= 1
            if (slot.users === 0) slots.delete(key)
          })
      )
  }
}
