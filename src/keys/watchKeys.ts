import { Effect, Latch, Schedule } from "effect"
import { LOCAL_KEY, OUTSIDE_KEY } from "../api/Principal.ts"
import { ExpiryClock } from "../store/journal/ExpiryClock.ts"
import type { KeyCache } from "./KeyCache.ts"

/** Interval of the checks. Other processes revoke keys in the database only. */
const EVERY = "250 millis"

interface Watched {
  readonly over: Latch.Latch
  waiting: number
}

/**
 * Waits until a key is revoked, expired or deleted. All waiting callers share one check; without them there is none.
 * While the database is unavailable, keys stay valid.
 */
export const watchKeys = Effect.fnUntraced(function* (cache: KeyCache["Service"]) {
  const watched = new Map<string, Watched>()
  const needed = yield* Latch.make(false)
  const clock = yield* ExpiryClock

  const look = Effect.gen(function* () {
    const { byHash } = yield* cache.current
    const now = yield* clock.millis
    const valid = new Set<string>()
    for (const { expiresAt, record } of byHash.values()) {
      if (watched.has(record.id) && record.revoked_at === null && expiresAt > now) valid.add(record.id)
    }
    for (const [id, { over }] of watched) if (!valid.has(id)) over.openUnsafe()
  })
  yield* needed.await.pipe(
    Effect.andThen(look),
    Effect.catch((error) => Effect.logDebug(`the keys of open streams cannot be read: ${error.detail}`)),
    Effect.repeat(Schedule.spaced(EVERY)),
    Effect.forkScoped
  )

  const begin = (id: string) =>
    Effect.sync(() => {
      const one = watched.get(id) ?? { over: Latch.makeUnsafe(false), waiting: 0 }
      one.waiting += 1
      watched.set(id, one)
      needed.openUnsafe()
      return one
    })
  const end = (id: string, one: Watched) =>
    Effect.sync(() => {
      one.waiting -= 1
      if (one.waiting > 0) return
      watched.delete(id)
      if (watched.size === 0) needed.closeUnsafe()
    })
  return (id: string) =>
    // The outside key and the socket end with the process.
    id === OUTSIDE_KEY || id === LOCAL_KEY
      ? Effect.never
      : Effect.acquireUseRelease(
          begin(id),
          ({ over }) => over.await,
          (one) => end(id, one)
        )
})
