import { Effect, Exit, Scope, Semaphore } from "effect"
import type { SqlError } from "effect/sql"
import type { PostgresUrl } from "../../../shared/config/DatabaseUrl.ts"
import type { Availability } from "./Availability.ts"
import { connectionError, isUnreachable } from "./errors.ts"
import { openSession, type Session, type Timeouts } from "./session.ts"

interface Pooled {
  readonly session: Session
  readonly close: Effect.Effect<void>
}

/**
 * A pool of connections, each for one borrower at a time. Lost connections are dropped on their return or on their next
 * use. While the database is unavailable, no caller waits for a connection.
 */
export interface SessionPool {
  readonly take: Effect.Effect<Pooled, SqlError.SqlError>
  readonly giveBack: (pooled: Pooled) => Effect.Effect<void>
  /** Opens a connection, and records the result as the availability of the database. */
  readonly open: Effect.Effect<Session, SqlError.SqlError, Scope.Scope>
}

export const makeSessionPool = Effect.fnUntraced(function* (options: {
  readonly url: PostgresUrl
  readonly size: number
  readonly timeouts: Timeouts
  readonly availability: Availability
}): Effect.fn.Return<SessionPool, never, Scope.Scope> {
  const { availability, timeouts, url } = options
  const scope = yield* Scope.Scope
  const places = yield* Semaphore.make(options.size)
  const idle: Array<Pooled> = []
  let closed = false
  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      closed = true
    })
  )

  const open = openSession(url, timeouts).pipe(
    Effect.tap(() => availability.found),
    Effect.tapError((error) => (isUnreachable(error) ? availability.lost(error.message) : Effect.void))
  )

  const openPooled = Effect.gen(function* () {
    const own = yield* Scope.fork(scope)
    const session = yield* Scope.provide(open, own).pipe(
      Effect.onError((cause) => Scope.close(own, Exit.failCause(cause)))
    )
    return { session, close: Scope.close(own, Exit.void) } satisfies Pooled
  })

  /** Returns an open connection, the one used last first, else a new one. */
  const any: Effect.Effect<Pooled, SqlError.SqlError> = Effect.suspend(() => {
    if (closed) return Effect.fail(connectionError("the store is closed", "connect"))
    const pooled = idle.pop()
    if (pooled === undefined) return openPooled
    return pooled.session.isOpen() ? Effect.succeed(pooled) : Effect.andThen(pooled.close, any)
  })

  const take = Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      yield* availability.check
      yield* restore(places.take(1))
      // The watchdog bounds the responses to borrowers, which wakes all waiting callers.
      return yield* Effect.andThen(availability.check, any).pipe(Effect.onError(() => places.release(1)))
    })
  )

  const giveBack = ({ session, close }: Pooled) =>
    Effect.suspend(() => {
      if (closed || !session.isOpen()) return close
      idle.push({ session, close })
      return Effect.void
    }).pipe(Effect.andThen(places.release(1)))

  return { take, giveBack, open }
})
