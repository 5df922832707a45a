import { Clock, Duration, Effect, Latch, type Scope } from "effect"
import type { NodeId } from "../../../contract/domain/Id.ts"
import { type Expiry, Liveness } from "./Liveness.ts"

const LOOK_MILLIS = 1000
/** A check this much late means that the process or the machine was suspended. */
const LATE_MILLIS = 1000

/** Synchronous functions, so that the caller updates its own state in the same step. */
export interface HeartbeatMonitor {
  record(node_id: NodeId): void
  forget(node_id: NodeId): void
}

/**
 * Detects nodes without heartbeats by a monotonic clock, which excludes time in which this process was suspended and
 * received none.
 * @param options.initial  nodes whose timeout begins now
 * @param options.onExpiry called with each expired timeout, one after another
 */
export const makeHeartbeatMonitor = Effect.fnUntraced(function* (options: {
  readonly heartbeatTimeout: Duration.Duration
  readonly nodeLostAfter: Duration.Duration
  readonly initial: Iterable<NodeId>
  readonly onExpiry: (expiry: Expiry) => void
}): Effect.fn.Return<HeartbeatMonitor, never, Scope.Scope> {
  const liveness = new Liveness({
    heartbeatTimeout: Duration.toMillis(options.heartbeatTimeout),
    nodeLostAfter: Duration.toMillis(options.nodeLostAfter)
  })
  const clock = yield* Clock.Clock
  const monotonic = () => Number(clock.monotonicTimeNanosUnsafe() / 1_000_000n)
  let counted = 0
  let uncounted = 0
  let last = monotonic()
  const now = () => {
    const at = monotonic()
    const since = at - last
    last = at
    if (since <= LOOK_MILLIS + LATE_MILLIS) counted += since
    else if (pending.isOpen()) uncounted += since
    return counted
  }

  const pending = Latch.makeUnsafe(true)

  for (const node_id of options.initial) liveness.record(node_id, now())

  const watch = Effect.gen(function* () {
    const before = uncounted
    const planned = liveness.untilNext(now())
    if (planned === undefined) {
      pending.closeUnsafe()
      return yield* pending.await
    }
    yield* Effect.sleep(Duration.millis(Math.min(planned, LOOK_MILLIS)))
    const at = now()
    const still = uncounted - before
    // Heartbeats that arrived meanwhile are not read yet.
    if (still > 0)
      return yield* Effect.logWarning(`this process was paused for ${Math.round(still / 1000)} s`)
    yield* Effect.sync(() => {
      for (const expiry of liveness.expire(at)) options.onExpiry(expiry)
    })
  })
  yield* Effect.forkScoped(Effect.forever(watch), { startImmediately: true })

  return {
    record: (node_id) => {
      liveness.record(node_id, now())
      pending.openUnsafe()
    },
    forget: (node_id) => liveness.forget(node_id)
  }
})
