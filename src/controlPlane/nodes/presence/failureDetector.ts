import { Duration, Effect, Queue, Schedule, type Scope } from "effect"
import type { NodeId } from "../../../contract/domain/Id.ts"
import { Leadership } from "../../store/Leadership.ts"
import { NodeRepo } from "../../store/repos/NodeRepo.ts"
import { Store } from "../../store/Store.ts"
import { Fleet } from "../fleet/Fleet.ts"
import { appendNodeChanged } from "../fleet/nodeChangeFeed.ts"
import { type Expiry, type HeartbeatMonitor, Liveness, makeHeartbeatMonitor } from "./Liveness.ts"

/** A {@link HeartbeatMonitor} whose clock its caller advances. */
export interface HeartbeatCounter extends HeartbeatMonitor {
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
}): Effect.fn.Return<
  HeartbeatMonitor & { advance(millis: number): void },
  never,
  Leadership | Fleet | NodeRepo | Store | Scope.Scope
> {
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
    record: (node_id) => monitor?.record(node_id),
    forget: (node_id) => monitor?.forget(node_id),
    advance: (millis) => counter?.advance(millis).forEach(enqueue)
  }
})
