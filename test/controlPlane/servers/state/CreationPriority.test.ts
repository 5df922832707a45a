import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber, Latch } from "effect"
import { TestClock } from "effect/testing"
import { CreationPriority } from "../../../../src/controlPlane/servers/state/ServersOptions.ts"

describe("docs/architecture.md, Creations before installations", () => {
  /** An installation that waits for its turn beside two creations, the end of each of which the test decides. */
  const waiting = Effect.gen(function* () {
    const { creating, turn } = yield* CreationPriority
    const ends = [Latch.makeUnsafe(false), Latch.makeUnsafe(false)]
    for (const end of ends) yield* Effect.forkScoped(creating(end.await), { startImmediately: true })
    const installation = yield* Effect.forkScoped(turn, { startImmediately: true })
    const [endFirst, endSecond] = ends.map((end) => Effect.andThen(end.open, TestClock.adjust(0)))
    return {
      endFirst: endFirst ?? Effect.void,
      endSecond: endSecond ?? Effect.void,
      hasTurn: () => installation.pollUnsafe() !== undefined,
      installation,
      turn
    }
  })

  it.effect("an installation begins at once without a creation, else when the last one has ended", () =>
    Effect.gen(function* () {
      yield* (yield* CreationPriority).turn
      const { endFirst, endSecond, hasTurn, installation, turn } = yield* waiting
      yield* endFirst
      assert.isFalse(hasTurn())
      yield* endSecond
      yield* Fiber.join(installation)
      yield* turn
    }).pipe(Effect.scoped, Effect.provide(CreationPriority.layer))
  )

  it.effect("creations hold up an installation for a second at most", () =>
    Effect.gen(function* () {
      const { hasTurn, installation } = yield* waiting
      yield* TestClock.adjust("999 millis")
      assert.isFalse(hasTurn())
      yield* TestClock.adjust("1 millis")
      yield* Fiber.join(installation)
    }).pipe(Effect.scoped, Effect.provide(CreationPriority.layer))
  )

  it.effect("a creation that fails or is interrupted counts as ended", () =>
    Effect.gen(function* () {
      const { creating, turn } = yield* CreationPriority
      yield* Effect.exit(creating(Effect.die("a defect")))
      const endless = yield* Effect.forkScoped(creating(Effect.never), { startImmediately: true })
      yield* Fiber.interrupt(endless)
      yield* turn
    }).pipe(Effect.scoped, Effect.provide(CreationPriority.layer))
  )
})
