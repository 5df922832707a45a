import { Context, type Duration, Effect, Latch, Layer } from "effect"
import type { ServerId } from "../../../contract/domain/Id.ts"
import { during } from "../../../shared/work/inScope.ts"
import { type KeyedLock, makeKeyedLock } from "../../../shared/work/KeyedLock.ts"

/** The bounds and times of the controllers, which tests change. */
export const ServersOptions = Context.Reference<{
  /** Provisioning calls to one node at a time. */
  readonly callsPerNode: number
  /** Delay before a call to a node is repeated, doubled up to `retryCap`. */
  readonly retryFrom: Duration.Input
  readonly retryCap: Duration.Input
  /** Servers that leave one drained node at a time. */
  readonly migrationsPerNode: number
  /** Between two attempts at a migration step whose condition does not hold yet. */
  readonly migrationPause: Duration.Input
  /** Between two looks at a server of a rollout, besides its changes. */
  readonly rolloutPause: Duration.Input
  /** Time for which a server of a rollout may wait for its node. */
  readonly rolloutNodeTimeout: Duration.Input
}>("muster/servers/ServersOptions", {
  defaultValue: () => ({
    callsPerNode: 64,
    retryFrom: "200 millis",
    retryCap: "30 seconds",
    migrationsPerNode: 2,
    migrationPause: "2 seconds",
    rolloutPause: "2 seconds",
    rolloutNodeTimeout: "5 minutes"
  })
})

/** Locks by server id, so that no installation reaches a node after the removal. Reports do not take the lock. */
export class ServerLocks extends Context.Service<ServerLocks, KeyedLock<ServerId>>()(
  "muster/servers/ServerLocks"
) {
  static readonly layer = Layer.sync(ServerLocks, () => makeKeyedLock())
}

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
