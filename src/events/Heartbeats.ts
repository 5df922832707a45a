import { Clock, Context, Effect, Latch, Layer } from "effect"
import { elapsedMillis, elapsedMillisOf } from "../domain/elapsed.ts"

/** Milliseconds between two heartbeats of a stream (spec 5). */
const INTERVAL = 15_000

/** The heartbeats of all streams, from one fiber: a fiber for each would take more memory than the rest of a stream. */
export class Heartbeats extends Context.Service<
  Heartbeats,
  {
    /** Calls `beat` every 15 s; returns how to end that. */
    add(beat: () => void): () => void
  }
>()("muster/events/Heartbeats") {
  static readonly layer = Layer.effect(
    Heartbeats,
    Effect.gen(function* () {
      const clock = yield* Clock.Clock
      /** The next time of each, which is in the order of the map. */
      const due = new Map<() => void, number>()
      const some = Latch.makeUnsafe(false)
      const turn = Effect.gen(function* () {
        yield* some.await
        const now = yield* elapsedMillis
        for (const [beat, at] of due) {
          if (at > now) return yield* Effect.sleep(at - now)
          due.delete(beat)
          due.set(beat, now + INTERVAL)
          beat()
        }
        if (due.size === 0) some.closeUnsafe()
      })
      yield* turn.pipe(
        Effect.catchDefect((defect) => Effect.logError("a heartbeat failed", defect)),
        Effect.forever,
        Effect.forkScoped
      )
      return Heartbeats.of({
        add: (beat) => {
          due.set(beat, elapsedMillisOf(clock) + INTERVAL)
          some.openUnsafe()
          return () => void due.delete(beat)
        }
      })
    })
  )
}
