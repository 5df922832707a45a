import { randomUUID } from "node:crypto"
import { Context, Effect, Layer, Queue } from "effect"
import { type InvalidRequest, type SourceFailed, Unavailable } from "../../contract/domain/errors.ts"
import { followChanges } from "../store/journal/Journal.ts"
import { Store, Transaction } from "../store/Store.ts"
import { BlueprintStore, SoftwareStore } from "./BlueprintStore.ts"
import type { Folder } from "./parse/parse.ts"

/** The reloads of other replicas, from the journal. Build this before the folders are read for the first time. */
export class ReloadFeed extends Context.Service<ReloadFeed>()("muster/blueprints/ReloadFeed", {
  make: Effect.gen(function* () {
    const origin = yield* Effect.sync(() => randomUUID())
    const reloaded = yield* Queue.unbounded<Folder>()
    yield* followChanges("controllers", (change) => {
      if (change.topic !== "definitions:reloaded" || change.origin === origin) return
      Queue.offerUnsafe(reloaded, change.folder)
    })
    return {
      /** The name of this process in the journal. */
      origin,
      next: Effect.map(Queue.takeAll(reloaded), (folders) => new Set(folders))
    }
  })
}) {
  static readonly layer = Layer.effect(ReloadFeed, ReloadFeed.make)
}

type Reload = Effect.Effect<void, InvalidRequest | SourceFailed | Unavailable>

/** Software first: blueprints refer to it. */
const order = ["software", "blueprints"] as const

/** Reloads on all replicas: the called replica reloads and notifies the others; each reads its own disk and sources. */
export class Reloads extends Context.Service<Reloads>()("muster/blueprints/Reloads", {
  make: Effect.gen(function* () {
    const stores = { blueprints: yield* BlueprintStore, software: yield* SoftwareStore }
    const news = yield* ReloadFeed
    const store = yield* Store

    const notifyReplicas = (folder: Folder) =>
      Effect.gen(function* () {
        const { append } = yield* Transaction
        yield* append({ topic: "definitions:reloaded", folder, origin: news.origin })
      }).pipe(
        store.write,
        Effect.mapError(
          () =>
            new Unavailable({
              detail: "the database cannot be reached: the other replicas were not notified",
              hint: "This replica has reloaded. Try again shortly."
            })
        )
      )

    // A source that cannot be synced does not stop the rest of the reload.
    const reload = (folder: Folder): Reload =>
      stores[folder].reload.pipe(
        Effect.tapErrorTag("SourceFailed", () => notifyReplicas(folder)),
        Effect.andThen(notifyReplicas(folder))
      )

    const follow = (folder: Folder) =>
      Effect.catch(stores[folder].reload, ({ detail }) =>
        Effect.logError(
          `${folder}: another replica has reloaded, this one could not: ${detail.split("\n").join("; ")}. ` +
            `Correct the cause here, then POST /api/${folder}/reload`
        )
      )

    yield* news.next.pipe(
      Effect.flatMap((folders) =>
        Effect.forEach(
          order.filter((folder) => folders.has(folder)),
          follow,
          { discard: true }
        )
      ),
      Effect.forever,
      Effect.forkScoped
    )

    return {
      /** As `BlueprintStore.reload`. @error Unavailable this replica has reloaded, but could not notify the others */
      blueprints: reload("blueprints"),
      /** Reloads as `SoftwareStore.reload`; errors as {@link blueprints}. */
      software: reload("software")
    }
  })
}) {
  static readonly layer = Layer.effect(Reloads, Reloads.make)
}
