import { Clock, Effect, type Exit, type Fiber, FiberHandle, type Scope } from "effect"
import { elapsedMillis, elapsedMillisOf } from "../domain/elapsed.ts"

interface Deadline {
  /** Time of {@link elapsedMillis}. */
  readonly at: number
  readonly expire: () => void
}

/** Deadlines of fibers, which share one timer: most fibers end long before theirs. */
export interface Deadlines {
  /**
   * Waits for a fiber. After some milliseconds it is interrupted, and `orElse` runs once it has ended. An interruption of
   * the wait leaves the fiber, without a deadline.
   */
  readonly join: <A, E, B, E2>(
    fiber: Fiber.Fiber<A, E>,
    millis: number,
    orElse: Effect.Effect<B, E2>
  ) => Effect.Effect<A | B, E | E2>
}

/** The timer ends with the scope. */
export const makeDeadlines: Effect.Effect<Deadlines, never, Scope.Scope> = Effect.gen(function* () {
  const clock = yield* Clock.Clock
  const deadlines = new Set<Deadline>()
  /** A run interrupts the one before. */
  const run = yield* FiberHandle.makeRuntime<never, never, void>()
  /** The end of the timer. */
  let until = Number.POSITIVE_INFINITY

  const expire = (now: number): Effect.Effect<void> => {
    until = Number.POSITIVE_INFINITY
    for (const deadline of deadlines) {
      if (deadline.at <= now) {
        deadlines.delete(deadline)
        deadline.expire()
      } else until = Math.min(until, deadline.at)
    }
    return until === Number.POSITIVE_INFINITY ? Effect.void : timer(until - now)
  }
  const timer = (millis: number): Effect.Effect<void> =>
    Effect.sleep(millis).pipe(Effect.andThen(elapsedMillis), Effect.flatMap(expire))

  return {
    join: <A, E, B, E2>(fiber: Fiber.Fiber<A, E>, millis: number, orElse: Effect.Effect<B, E2>) =>
      Effect.callback<A | B, E | E2>((resume) => {
        let isOver = false
        const at = elapsedMillisOf(clock) + millis
        const deadline: Deadline = {
          at,
          expire: () => {
            isOver = true
            fiber.interruptUnsafe()
          }
        }
        deadlines.add(deadline)
        if (at < until) {
          until = at
          run(timer(millis))
        }
        const removeObserver = fiber.addObserver((exit: Exit.Exit<A, E>) => {
          deadlines.delete(deadline)
          resume(isOver ? orElse : exit)
        })
        return Effect.sync(() => {
          deadlines.delete(deadline)
          removeObserver()
        })
      })
  }
})
