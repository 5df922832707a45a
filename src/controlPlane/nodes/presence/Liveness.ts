import { Clock, Duration, Effect, Latch, type Scope } from "effect"
import type { NodeId } from "../../../contract/domain/Id.ts"

/** Timeouts after the last heartbeat, in milliseconds. */
export interface LivenessOptions {
  readonly heartbeatTimeout: number
  readonly nodeLostAfter: number
}

export interface Expiry {
  readonly node_id: NodeId
  readonly kind: "lost" | "given-up"
}

/**
 * The time since the last heartbeat of each node, in constant time: a heartbeat requeues its node,
 * so only the head can expire. Times are milliseconds of a monotonic clock.
 */
export class Liveness {
  readonly #options: LivenessOptions
  /** Times of the last heartbeats, oldest first. */
  readonly #heartbeats = new Map<NodeId, number>()
  readonly #lost = new Map<NodeId, number>()

  constructor(options: LivenessOptions) {
    this.#options = options
  }

  record(node_id: NodeId, now: number): void {
    this.forget(node_id)
    this.#heartbeats.set(node_id, now)
  }

  /** Notes a node that is lost already, and can only be given up. */
  lose(node_id: NodeId, now: number): void {
    this.forget(node_id)
    this.#lost.set(node_id, now)
  }

  forget(node_id: NodeId): void {
    this.#heartbeats.delete(node_id)
    this.#lost.delete(node_id)
  }

  /** Returns the expired timeouts, each once, in the order of the last heartbeats. */
  expire(now: number): ReadonlyArray<Expiry> {
    const expired: Array<Expiry> = []
    for (const [node_id, since] of this.#heartbeats) {
      if (since + this.#options.heartbeatTimeout > now) break
      this.#heartbeats.delete(node_id)
      this.#lost.set(node_id, since)
      expired.push({ node_id, kind: "lost" })
    }
    for (const [node_id, since] of this.#lost) {
      if (since + this.#options.nodeLostAfter > now) break
      this.#lost.delete(node_id)
      expired.push({ node_id, kind: "given-up" })
    }
    return expired
  }

  /** Returns the milliseconds, at least 1, until {@link expire} may return a timeout, if one is pending. */
  untilNext(now: number): number | undefined {
    if (this.#heartbeats.size === 0 && this.#lost.size === 0) return undefined
    const times = [now + this.#options.heartbeatTimeout]
    for (const [, since] of this.#heartbeats) {
      times.push(since + this.#options.heartbeatTimeout)
      break
    }
    for (const [, since] of this.#lost) {
      times.push(since + this.#options.nodeLostAfter)
      break
    }
    return Math.max(1, Math.min(...times) - now)
  }
}

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
