import { randomUUID } from "node:crypto"
import { Context, Effect, Layer, Queue } from "effect"
import { Journal } from "../store/journal/Journal.ts"
import type { Folder } from "./parse/parse.ts"

/**
 * The reloads of other replicas, from the journal. Build this layer before the folders are read for the first time, so
 * that no reload is missed.
 */
export class ReloadFeed extends Context.Service<
  ReloadFeed,
  {
    /** The name of this process in the journal. */
    readonly origin: string
    /** Waits for reloads of other replicas; returns the folders reloaded since the last call. */
    readonly next: Effect.Effect<ReadonlySet<Folder>>
  }
>()("muster/blueprints/ReloadFeed") {
  static readonly layer = Layer.effect(
    ReloadFeed,
    Effect.gen(function* () {
      const journal = yield* Journal
      const origin = yield* Effect.sync(() => randomUUID())
      const reloaded = yield* Queue.unbounded<Folder>()
      yield* journal.follow("controllers", (entries) =>
        Effect.sync(() => {
          for (const { change } of entries) {
            if (change.topic !== "definitions:reloaded" || change.origin === origin) continue
            Queue.offerUnsafe(reloaded, change.folder)
          }
        })
      )
      return ReloadFeed.of({
        origin,
        next: Effect.map(Queue.takeAll(reloaded), (folders) => new Set(folders))
      })
    })
  )
}
