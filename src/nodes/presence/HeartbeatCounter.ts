import { Duration } from "effect"
import type { HeartbeatMonitor } from "./HeartbeatMonitor.ts"
import { type Expiry, Liveness } from "./Liveness.ts"

/** {@link HeartbeatMonitor} on a clock that goes on only as far as it is told. */
export interface HeartbeatCounter extends HeartbeatMonitor {
  /** So many milliseconds more, in which everybody could have been heard; answers who has become due. */
  advance(millis: number): ReadonlyArray<Expiry>
}

/**
 * The silence of nodes that other processes hear, too: time counts only once it is known that none of them has heard
 * anything.
 *
 * @param options.silent nodes whose silence begins now
 * @param options.lost   nodes that are lost already, and given up in time
 */
export const makeHeartbeatCounter = (options: {
  readonly lostAfter: Duration.Duration
  readonly givenUpAfter: Duration.Duration
  readonly silent: Iterable<string>
  readonly lost: Iterable<string>
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
