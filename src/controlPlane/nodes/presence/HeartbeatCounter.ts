import { Duration } from "effect"
import type { NodeId } from "../../../contract/domain/Id.ts"
import type { HeartbeatMonitor } from "./HeartbeatMonitor.ts"
import { type Expiry, Liveness } from "./Liveness.ts"

/** A {@link HeartbeatMonitor} whose clock its caller advances. */
export interface HeartbeatCounter extends HeartbeatMonitor {
  /** Advances the clock by a time in which any heartbeat would have been noticed; returns the expired timeouts. */
  advance(millis: number): ReadonlyArray<Expiry>
}

/**
 * Detects nodes without heartbeats on several replicas: time counts only once the heartbeats of all replicas are read.
 *
 * @param options.silent nodes whose timeout begins now
 * @param options.lost   nodes that are lost already, whose second timeout begins now
 */
export const makeHeartbeatCounter = (options: {
  readonly lostAfter: Duration.Duration
  readonly givenUpAfter: Duration.Duration
  readonly silent: Iterable<NodeId>
  readonly lost: Iterable<NodeId>
}): HeartbeatCounter => {
  const liveness = new Liveness({
    lostAfter: Duration.toMillis(options.lostAfter),
    givenUpAfter: Duration.toMillis(options.givenUpAfter)
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
