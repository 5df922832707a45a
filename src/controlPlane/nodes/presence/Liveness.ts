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
