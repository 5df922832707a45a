import { Clock, Duration, Effect, Latch, type Scope } from "effect"
import { type Expiry, Liveness } from "./Liveness.ts"

/** Between two looks at most. */
const LOOK_MILLIS = 1000
/** A look that is this much too late: the process stood still, or the machine slept. */
const LATE_MILLIS = 1000

/** Plain functions: what they note and what the caller notes beside it are one step. */
export interface HeartbeatMonitor {
  /** A sign of life. */
  record(node_id: string): void
  forget(node_id: string): void
}

/**
 * Watches for nodes that fall silent, on a clock that only goes on. While this process stands still (stopped,
 * frozen, a blocked event loop) it hears nobody, and that is not the nodes' silence: such time does not count.
 *
 * @param options.initial  nodes whose silence begins now
 * @param options.onExpiry called with each node that has been silent for long enough, one after another
 */
export const makeHeartbeatMonitor = Effect.fnUntraced(function* (options: {
  readonly lostAfter: Duration.Duration
  readonly givenUpAfter: Duration.Duration
  readonly initial: Iterable<string>
  readonly onExpiry: (expiry: Expiry) => void
}): Effect.fn.Return<HeartbeatMonitor, never, Scope.Scope> {
  const liveness = new Liveness({
    lostAfter: Duration.toMillis(options.lostAfter),
    givenUpAfter: Duration.toMillis(options.givenUpAfter)
  })
  const clock = yield* Clock.Clock
  const monotonic = () => Number(clock.monotonicTimeNanosUnsafe() / 1_000_000n)
  let counted = 0
  let uncounted = 0
  let last = monotonic()
  /** The time in which this process has listened. */
  const now = () => {
    const at = monotonic()
    const since = at - last
    last = at
    if (since <= LOOK_MILLIS + LATE_MILLIS) counted += since
    else if (somebody.isOpen()) uncounted += since
    return counted
  }

  /** Open while there is somebody to wait for. */
  const somebody = Latch.makeUnsafe(true)

  for (const node_id of options.initial) liveness.record(node_id, now())

  const watch = Effect.gen(function* () {
    const before = uncounted
    const planned = liveness.untilNext(now())
    if (planned === undefined) {
      somebody.closeUnsafe()
      return yield* somebody.await
    }
    yield* Effect.sleep(Duration.millis(Math.min(planned, LOOK_MILLIS)))
    const at = now()
    const still = uncounted - before
    // What came meanwhile has not been read yet.
    if (still > 0)
      return yield* Effect.logWarning(`this process stood still for ${Math.round(still / 1000)} s`)
    yield* Effect.sync(() => {
      for (const expiry of liveness.expire(at)) options.onExpiry(expiry)
    })
  })
  yield* Effect.forkScoped(Effect.forever(watch), { startImmediately: true })

  return {
    record: (node_id) => {
      liveness.record(node_id, now())
      somebody.openUnsafe()
    },
    forget: (node_id) => liveness.forget(node_id)
  }
})
