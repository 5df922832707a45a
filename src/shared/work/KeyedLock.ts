import { Effect } from "effect"

/** Bounds how many effects of one key run at a time, in the order of their calls; keys do not wait for each other. */
export interface KeyedLock<K extends string = string> {
  withLock(key: K): <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  /** Whether another effect of the key would wait. */
  isFull(key: K): boolean
}

interface User {
  holds: boolean
  resume: ((turn: Effect.Effect<void>) => void) | undefined
}

interface Slot {
  holders: number
  readonly waiting: Set<User>
}

/**
 * Makes a lock without state for idle keys: an uncontended key costs three effects, a semaphore twenty. One permit
 * makes a mutex.
 */
export const makeKeyedLock = <K extends string = string>(permits = 1): KeyedLock<K> => {
  const slots = new Map<K, Slot>()

  /** Returns whether the user holds the lock now. */
  const enter = (key: K, user: User): boolean => {
    const slot = slots.get(key) ?? { holders: 0, waiting: new Set() }
    slots.set(key, slot)
    user.holds = slot.holders < permits
    if (user.holds) slot.holders += 1
    else slot.waiting.add(user)
    return user.holds
  }

  /** Passes the place of a user to the next one; a user that has not entered has none. */
  const leave = (key: K, user: User): void => {
    const slot = slots.get(key)
    if (slot === undefined || slot.waiting.delete(user) || !user.holds) return
    const [next] = slot.waiting
    if (next !== undefined) {
      slot.waiting.delete(next)
      next.holds = true
      // In a turn of its own: a long row of users that do not wait for anything would exhaust the stack.
      next.resume?.(Effect.yieldNow)
      return
    }
    slot.holders -= 1
    if (slot.holders === 0) slots.delete(key)
  }

  const turnOf = (user: User) =>
    Effect.callback<void>((resume) => {
      if (user.holds) resume(Effect.void)
      else user.resume = resume
    })

  return {
    isFull: (key) => (slots.get(key)?.holders ?? 0) >= permits,
    withLock: (key) => (effect) =>
      Effect.suspend(() => {
        const user: User = { holds: false, resume: undefined }
        // An interruption may come before the user enters, while it waits, and between its turn and its effect.
        return Effect.onExitPrimitive(
          Effect.suspend(() => (enter(key, user) ? effect : Effect.andThen(turnOf(user), effect))),
          () => {
            leave(key, user)
            return undefined
          }
        )
      })
  }
}
