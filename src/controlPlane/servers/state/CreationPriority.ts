import { Context, Effect, Latch, Layer } from "effect"
import { during } from "../../../shared/work/during.ts"

const LONGEST = "1 second"

/**
 * Lets creations, for which callers wait, go before installations, which cost nodes and process more. An installation
 * waits at most a second for a moment without a creation.
 */
export class CreationPriority extends Context.Service<
  CreationPriority,
  {
    creating<A, E, R>(creation: Effect.Effect<A, E, R>): Effect.Effect<A, E, R>
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
