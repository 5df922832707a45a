import type { ServerId } from "../../domain/Id.ts"
import type { ServerSpec } from "../../domain/NodeMessages.ts"

/** The time for which a removal is remembered, in ms: far longer than a call can be in flight. */
const MEMORY_MILLIS = 60_000
/** The limit of remembered removals; the oldest are dropped. */
const MAX_REMOVALS = 10_000

interface Removal {
  readonly at: number
  /** The sequence of the server's last report; infinite if there was no server. */
  readonly sequence: number
  readonly arrival: string | undefined
}

/**
 * The recent removals, so that a creation that was sent before the removal, and is delivered after it, has no effect. A
 * later creation has a higher sequence or another migration, and is accepted. Not persistent: the next registration
 * reports servers that are left on the node.
 */
export class RecentRemovals {
  readonly #removals = new Map<ServerId, Removal>()

  /**
   * Records a removal, also of a missing server.
   *
   * @param now milliseconds of a monotonic clock
   */
  add(
    id: ServerId,
    now: number,
    was?: { readonly sequence: number; readonly arrival?: string | undefined }
  ): void {
    // A repeated removal refers to the server of the first one.
    const { arrival, sequence } = was ??
      this.#removals.get(id) ?? { sequence: Number.POSITIVE_INFINITY, arrival: undefined }
    this.#removals.delete(id)
    this.#removals.set(id, { at: now, sequence, arrival })
    for (const [oldest, { at }] of this.#removals) {
      if (this.#removals.size <= MAX_REMOVALS && now - at < MEMORY_MILLIS) break
      this.#removals.delete(oldest)
    }
  }

  /** Whether a creation was sent before the removal of its server. */
  covers(spec: Pick<ServerSpec, "id" | "last_sequence" | "arrival">, now: number): boolean {
    const removal = this.#removals.get(spec.id)
    if (removal === undefined || now - removal.at >= MEMORY_MILLIS) return false
    if (spec.arrival !== undefined) return spec.arrival === removal.arrival
    return (spec.last_sequence ?? 0) <= removal.sequence
  }

  /** Forgets a removal, because the server was created again. */
  forget(id: ServerId): void {
    this.#removals.delete(id)
  }
}
