import { Clock, Duration, Effect, Latch, Queue, Schedule, type Scope } from "effect"
import type { NodeId } from "../../../contract/domain/Id.ts"
import { elapsedMillisOf } from "../../../shared/work/elapsed.ts"
import { Leadership } from "../../store/Leadership.ts"
import { NodeRepo } from "../../store/repos/NodeRepo.ts"
import { Store } from "../../store/Store.ts"
import { appendNodeChanged, Fleet } from "../fleet/Fleet.ts"

/** Timeouts after the last heartbeat, in milliseconds. */
interface LivenessOptions {
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
interface HeartbeatMonitor {
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
  const monotonic = () => elapsedMillisOf(clock)
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

/** A {@link HeartbeatMonitor} whose clock its caller advances. */
interface HeartbeatCounter extends HeartbeatMonitor {
  /** Advances the clock by a time in which any heartbeat is noticed. Returns the expired timeouts. */
  advance(millis: number): ReadonlyArray<Expiry>
}

/**
 * Detects nodes without heartbeats on several replicas, by time in which all replicas' heartbeats are read.
 * @param options.silent nodes whose timeout begins now
 * @param options.lost   nodes that are lost already, whose second timeout begins now
 */
export const makeHeartbeatCounter = (options: {
  readonly heartbeatTimeout: Duration.Duration
  readonly nodeLostAfter: Duration.Duration
  readonly silent: Iterable<NodeId>
  readonly lost: Iterable<NodeId>
}): HeartbeatCounter => {
  const liveness = new Liveness({
    heartbeatTimeout: Duration.toMillis(options.heartbeatTimeout),
    nodeLostAfter: Duration.toMillis(options.nodeLostAfter)
  })
  let now = 0
  for (const id of options.silent) liveness.record(id, now)
  for (const id of options.lost) liveness.lose(id, now)
  return {
    record: (node_id) => liveness.record(node_id, now),
    forget: (node_id) => liveness.forget(node_id),
    advance: (millis) => {
      now += millis
      return liveness.expire(now)
    }
  }
}

const AGAIN = "1 second"

/** The state of a node when its timeout expired. The node is lost only if this is still its state. */
interface Due extends Expiry {
  readonly token: string
  readonly beats: number
}

/**
 * Records on the leader that nodes without heartbeats are lost and later given up (spec 9.6). Each leader starts the
 * timeouts again.
 * @param options.beats returns the number of the last heartbeat of a node
 */
export const makeFailureDetector = Effect.fnUntraced(function* (options: {
  readonly heartbeatTimeout: Duration.Duration
  readonly nodeLostAfter: Duration.Duration
  readonly beats: (node_id: NodeId) => number
}) {
  const leadership = yield* Leadership
  const fleet = yield* Fleet
  const repo = yield* NodeRepo
  const store = yield* Store
  const times = { heartbeatTimeout: options.heartbeatTimeout, nodeLostAfter: options.nodeLostAfter }
  let monitor: HeartbeatMonitor | undefined
  let counter: HeartbeatCounter | undefined
  let expired: Queue.Queue<Due> | undefined

  const enqueue = (expiry: Expiry) => {
    const token = fleet.get(expiry.node_id)?.record?.token
    if (token === undefined || expired === undefined) return
    Queue.offerUnsafe(expired, { ...expiry, token, beats: options.beats(expiry.node_id) })
  }
  const lose = ({ beats, kind, node_id, token }: Due) =>
    Effect.gen(function* () {
      const changed = yield* kind === "lost"
        ? repo.markLost(node_id, token, beats)
        : repo.markGivenUp(node_id, token)
      if (changed) yield* appendNodeChanged(node_id, kind)
      return changed
    })
  /** Restarts the timeout after a heartbeat in between or if the database is unavailable. */
  const restartTimeout = (node_id: NodeId) => {
    if (fleet.get(node_id)?.record?.gone === null) monitor?.record(node_id)
  }
  const settle = (due: Due) =>
    Effect.suspend(() => store.write(lose(due))).pipe(
      Effect.tap((changed) =>
        changed || due.kind !== "lost" ? Effect.void : Effect.sync(() => restartTimeout(due.node_id))
      ),
      Effect.tapError((error) =>
        Effect.logDebug(`the loss of a node cannot be stored: ${error.detail}`).pipe(
          Effect.annotateLogs({ node_id: due.node_id, kind: due.kind })
        )
      ),
      // Other replicas may have received heartbeats that they cannot write.
      Effect.catchIf(
        () => !leadership.isSingle && due.kind === "lost",
        () => Effect.sync(() => restartTimeout(due.node_id))
      ),
      Effect.retry(Schedule.spaced(AGAIN)),
      Effect.orDie
    )

  const detect = Effect.gen(function* () {
    const queue = yield* Queue.unbounded<Due>()
    const records = [...fleet.nodes].flatMap(({ record }) => (record === undefined ? [] : [record]))
    const ids = (gone: "lost" | null) =>
      records.filter((record) => record.gone === gone).map((record) => record.id)
    expired = queue
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        monitor = undefined
        counter = undefined
        expired = undefined
      })
    )
    if (leadership.isSingle) {
      monitor = yield* makeHeartbeatMonitor({ ...times, initial: ids(null), onExpiry: enqueue })
    } else {
      counter = makeHeartbeatCounter({ ...times, silent: ids(null), lost: ids("lost") })
      monitor = counter
    }
    const all = Effect.flatMap(Queue.takeAll(queue), (due) =>
      Effect.forEach(due, settle, { concurrency: "unbounded", discard: true })
    )
    return yield* Effect.forever(all)
  })
  yield* leadership.whileLeader(detect)

  return {
    record: (node_id: NodeId) => monitor?.record(node_id),
    forget: (node_id: NodeId) => monitor?.forget(node_id),
    advance: (millis: number) => counter?.advance(millis).forEach(enqueue)
  }
})
