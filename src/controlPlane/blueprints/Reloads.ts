import { randomUUID } from "node:crypto"
import { Context, Effect, Layer, Queue } from "effect"
import { HttpServerResponse } from "effect/http"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { type InvalidRequest, type SourceFailed, Unavailable } from "../../contract/domain/errors.ts"
import { pageNumber, pageSize, paginated } from "../../contract/domain/Pagination.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { CurrentSlsRequest } from "../http/sls.ts"
import { followChanges } from "../store/journal/Journal.ts"
import { append, Store } from "../store/Store.ts"
import { BlueprintStore, SoftwareStore } from "./BlueprintStore.ts"
import type { Folder } from "./parse/parse.ts"
import { Sources } from "./sources/Sources.ts"

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
      append({ topic: "definitions:reloaded", folder, origin: news.origin }).pipe(
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

const sizes = { standard: 50, fallback: 20, maximum: 1000 }

const pageOf = <A>(all: ReadonlyArray<A>, page: number, per_page: number) => {
  const items = all.slice((page - 1) * per_page, page * per_page)
  return paginated({ items, total: all.length }, { page, per_page })
}

/** Handlers of the blueprint, mixin and software routes (spec 4.1). */
export const BlueprintsHandlers = handlersOf(
  ApplicationApi,
  "blueprints",
  Effect.fn(function* (handlers) {
    const blueprints = yield* BlueprintStore
    const software = yield* SoftwareStore
    const reloads = yield* Reloads
    const sources = yield* Sources
    return handlers.handleAll({
      list: ({ query }) =>
        Effect.map(blueprints.list, (all) =>
          pageOf(all, pageNumber(query.page), pageSize(query.limit ?? query.per_page, sizes))
        ),
      reload: () => reloads.blueprints,
      get: ({ params }) => blueprints.get(params.blueprint),
      mixins: Effect.fnUntraced(function* () {
        const all = yield* blueprints.mixins
        const sls = yield* CurrentSlsRequest
        if (sls === undefined) return all
        return HttpServerResponse.jsonUnsafe(pageOf(all, pageNumber(sls.page), pageSize(sls.per_page, sizes)))
      }),
      mixin: ({ params }) => blueprints.mixin(params.mixin),
      softwareList: () => software.list,
      softwareReload: () => reloads.software,
      software: ({ params }) => software.get(params.software),
      warnings: Effect.fnUntraced(function* () {
        const all = { software: yield* software.warnings, blueprints: yield* blueprints.warnings }
        return [
          ...all.software.map((detail) => ({ folder: "software" as const, detail })),
          ...all.blueprints.map((detail) => ({ folder: "blueprints" as const, detail }))
        ]
      }),
      sources: () => sources.list
    })
  })
)
