import { Effect, Semaphore } from "effect"

/** Runs effects of one key one after another, first come, first served; keys do not wait for each other. */
export interface KeyedLock {
  withLock(key: string): <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
}

/** A mutex that keeps nothing of keys that nobody holds or waits for. */
export const makeKeyedLock = (): KeyedLock => {
  const slots = new Map<string, { readonly semaphore: Semaphore.Semaphore; users: number }>()
  return {
    withLock: (key) => (effect) =>
      Effect.acquireUseRelease(
        Effect.sync(() => {
          const slot = slots.get(key) ?? { semaphore: Semaphore.makeUnsafe(1), users: 0 }
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
