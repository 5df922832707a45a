import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { ApplicationApi } from "../api/ApplicationApi.ts"
import { NodeRegistry } from "./NodeRegistry.ts"

/** Handlers of the node routes (contract 4.2; decisions, section 2). */
export const NodesHandlers = HttpApiBuilder.group(
  ApplicationApi,
  "nodes",
  Effect.fn(function* (handlers) {
    const nodes = yield* NodeRegistry
    return handlers.handleAll({
      list: ({ query }) =>
        Effect.map(nodes.list, (list) => (query.ids_only === "true" ? list.map((node) => node.id) : list)),
      get: ({ params }) => nodes.get(params.node),
      system: ({ params }) => nodes.system(params.node),
      drained: ({ params, payload }) => nodes.setDrained(params.node, payload.drained),
      remove: ({ params }) => nodes.remove(params.node)
    })
  })
)
