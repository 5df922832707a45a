import { randomUUID } from "node:crypto"
import { Context, Effect, Layer, Queue } from "effect"
import { Journal } from "../store/journal/Journal.ts"
import type { Folder } from "./parse/parse.ts"

/**
 * What the journal tells of reloads of other replicas, from the moment that this is built: build it before the folders
 * are read for the first time, so that none is missed.
 */
export class ReloadFeed extends Context.Service<
  ReloadFeed,
  {
    /** Names this process in the journal. */
    readonly origin: string
    /** Waits until another replica has reloaded folders; those that it has since the last time. */
    readonly next: Effect.Effect<ReadonlySet<Folder>>
  }
>()("muster/blueprints/ReloadFeed") {
  static readonly layer = Layer.effect(
    ReloadFeed,
    Effect.gen(function* () {
      const journal = yield* Journal
      const origin = yield* Effect.sync(() => randomUUID())
      const told = yield* Queue.unbounded<Folder>()
      yield* journal.follow((entries) =>
        Effect.sync(() => {
          for (const { change } of entries) {
            if (change.topic !== "definitions:reloaded" || change.payload.origin === origin) continue
            Queue.offerUnsafe(told, change.payload.folder)
          }
        })
      )
      return ReloadFeed.of({ origin, next: Effect.map(Queue.takeAll(told), (folders) => new Set(folders)) })
    })
  )
}
