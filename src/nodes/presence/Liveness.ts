/** Times after the last sign of life, in milliseconds. */
export interface LivenessOptions {
  readonly lostAfter: number
  readonly givenUpAfter: number
}

export interface Expiry {
  readonly node_id: string
  readonly kind: "lost" | "given-up"
}

/**
 * Who has been silent for how long. A sign of life moves a node to the end of a queue, so that only its head need be
 * looked at: every operation takes constant time for a node. Times are milliseconds of any clock that only goes on.
 */
export class Liveness {
  readonly #options: LivenessOptions
  /** By node: its last sign of life; oldest first. */
  readonly #heard = new Map<string, number>()
  readonly #lost = new Map<string, number>()

  constructor(options: LivenessOptions) {
    this.#options = options
  }

  /** A sign of life. */
  record(node_id: string, now: number): void {
    this.forget(node_id)
    this.#heard.set(node_id, now)
  }

  /** Lost already: what is to come is that it is given up. */
  lose(node_id: string, now: number): void {
    this.forget(node_id)
    this.#lost.set(node_id, now)
  }

  forget(node_id: string): void {
    this.#heard.delete(node_id)
    this.#lost.delete(node_id)
  }

  /** What has become due, each once, in the order in which the nodes fell silent. */
  expire(now: number): ReadonlyArray<Expiry> {
    const expired: Array<Expiry> = []
    for (const [node_id, since] of this.#heard) {
      if (since + this.#options.lostAfter > now) break
      this.#heard.delete(node_id)
      this.#lost.set(node_id, since)
      expired.push({ node_id, kind: "lost" })
    }
    for (const [node_id, since] of this.#lost) {
      if (since + this.#options.givenUpAfter > now) break
      this.#lost.delete(node_id)
      expired.push({ node_id, kind: "given-up" })
    }
    return expired
  }

  /**
   * Milliseconds, at least 1, until {@link expire} may have something, whoever is heard in between; undefined when
   * there is nobody to wait for.
   */
  untilNext(now: number): number | undefined {
    if (this.#heard.size === 0 && this.#lost.size === 0) return undefined
    const times = [now + this.#options.lostAfter]
    for (const [, since] of this.#heard) {
      times.push(since + this.#options.lostAfter)
      break
    }
    for (const [, since] of this.#lost) {
      times.push(since + this.#options.givenUpAfter)
      break
    }
    return Math.max(1, Math.min(...times) - now)
  }
}
