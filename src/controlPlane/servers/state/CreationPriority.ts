import { Context, Effect, Latch, Layer } from "effect"
import { during } from "../../../shared/work/during.ts"

/** The longest time that creations hold up an installation. */
const LONGEST = "1 second"

/**
 * Lets creations go before the installations of earlier ones: callers wait for a creation, while an installation takes its
 * node much longer, and this process more work. An installation waits for a moment without a creation, at most a second.
 */
export class CreationPriority extends Context.Service<
  CreationPriority,
  {
    /** Runs a creation. */
    creating<A, E, R>(creation: Effect.Effect<A, E, R>): Effect.Effect<A, E, R>
    /** Waits until an installation may begin. */
    readonly turn: Effect.Effect<void>
  }
>()("muster/servers/CreationPriority") {
  static readonly layer = Layer.sync(CreationPriority, () => {
    let creations = 0
    const idle = Latch.makeUnsafe(true)

    return CreationPriority.of({
      creating: during(
        () => {
          creations += 1
          idle.closeUnsafe()
        },
        () => {
          creations -= 1
          if (creations === 0) idle.openUnsafe()
        }
      ),
      turn: Effect.suspend(() =>
        idle.isOpen() ? Effect.void : Effect.raceFirst(idle.await, Effect.sleep(LONGEST))
      )
    })
  })
}
