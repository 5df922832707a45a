import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { pageNumber, pageSize, paginated } from "../../contract/domain/Pagination.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { CurrentSlsRequest } from "../http/sls.ts"
import { BlueprintStore, SoftwareStore } from "./BlueprintStore.ts"
import { Reloads } from "./Reloads.ts"
import { Sources } from "./sources/Sources.ts"

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
