import type { ServerSpec } from "../../domain/NodeMessages.ts"

/** How long a removal is remembered, in ms: far longer than a call that was sent before it can be under way. */
const MEMORY_MILLIS = 60_000
/** Removals that are remembered at most; the oldest go first. */
const MOST = 10_000

interface Removal {
  readonly at: number
  /** Sequence of the last report of what was removed; infinite where there was nothing. */
  readonly sequence: number
  readonly arrival: string | undefined
}

/**
 * The servers that were removed lately, so that a creation which was sent before the removal, and is overtaken by it,
 * makes nothing. Whoever asks for the server later knows more of it, or names another move, and gets it. Forgotten with
 * the process: what is left on the node after that the next registration tells.
 */
export class Removed {
  readonly #removals = new Map<string, Removal>()

  /**
   * A server was removed, or asked to be removed where there was none.
   *
   * @param now milliseconds of a clock that only goes on
   */
  add(
    id: string,
    now: number,
    was?: { readonly sequence: number; readonly arrival?: string | undefined }
  ): void {
    // A removal that is repeated is of what was there the first time.
    const { arrival, sequence } = was ??
      this.#removals.get(id) ?? { sequence: Number.POSITIVE_INFINITY, arrival: undefined }
    this.#removals.delete(id)
    this.#removals.set(id, { at: now, sequence, arrival })
    for (const [oldest, { at }] of this.#removals) {
      if (this.#removals.size <= MOST && now - at < MEMORY_MILLIS) break
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

  /** The server is there again. */
  forget(id: string): void {
    this.#removals.delete(id)
  }
}
