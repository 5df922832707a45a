import { Effect, Latch, type Scope } from "effect"
import type { ServerId } from "../../domain/Id.ts"

/** The latches of callers that wait for a change of a server. */
export class ServerChanges {
  readonly #waiting = new Map<ServerId, Set<Latch.Latch>>()

  /** Opens the latches of a server that has changed. */
  open(id: ServerId): void {
    for (const latch of this.#waiting.get(id) ?? []) latch.openUnsafe()
  }

  /** Returns a latch that each change of a server opens. */
  latchOf(id: ServerId): Effect.Effect<Latch.Latch, never, Scope.Scope> {
    return Effect.acquireRelease(
      Effect.sync(() => {
        const latch = Latch.makeUnsafe(false)
        const others = this.#waiting.get(id) ?? new Set()
        this.#waiting.set(id, others.add(latch))
        return latch
      }),
      (latch) =>
        Effect.sync(() => {
          const others = this.#waiting.get(id)
          others?.delete(latch)
          if (others?.size === 0) this.#waiting.delete(id)
        })
    )
  }
}
