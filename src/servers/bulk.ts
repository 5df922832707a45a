import { Effect } from "effect"
import type { BulkOutcomes, Selector } from "../api/selector.ts"
import { type InvalidRequest, NotFound } from "../domain/errors.ts"
import type { ServerId } from "../domain/Id.ts"
import { RequestId } from "../domain/RequestId.ts"
import type { ServerFilter } from "./index/ServerFilter.ts"
import { parseConditions } from "./listQuery.ts"
import type { NodeCallError } from "./records/nodeErrors.ts"
import { ServerManager } from "./ServerManager.ts"

/** Servers of a bulk action that are worked on at a time. */
const AT_ONCE = 64

const conditionsOf = ({ labels = [] }: Selector) =>
  Array.isArray(labels) ? labels : Object.entries(labels).map(([key, value]) => `${key}=${value}`)

/** Acts on all servers that a selector selects; each has an outcome of its own (life.md, "Changing"). */
export const makeBulk = Effect.map(ServerManager, (servers) =>
  Effect.fn("bulk")(function* (
    selector: Selector,
    act: (id: ServerId) => Effect.Effect<void, NodeCallError>
  ): Effect.fn.Return<BulkOutcomes, InvalidRequest> {
    const { blueprint_id, ids, node_id, status } = selector
    const filter: ServerFilter = {
      labels: yield* parseConditions(conditionsOf(selector), "body field selector.labels"),
      ...(blueprint_id === undefined ? {} : { blueprint_id }),
      ...(node_id === undefined ? {} : { node_id }),
      ...(status === undefined ? {} : { status }),
      ...(ids === undefined ? {} : { ids: new Set(ids) })
    }
    const page = yield* servers.select({ filter })
    const known = new Set(yield* servers.ids)
    const unknown = (ids ?? []).filter((id) => !known.has(id))
    const request_id = (yield* RequestId) ?? ""
    const outcomes = yield* Effect.forEach(
      [...page.ids, ...new Set(unknown)],
      (id) =>
        (known.has(id) ? act(id) : Effect.fail(NotFound.server(id))).pipe(
          Effect.match({
            onFailure: ({ code, detail, hint, status }) => ({ code, status, detail, hint, request_id }),
            onSuccess: () => ({ status: 200 as const })
          }),
          Effect.map((outcome) => [id, outcome] as const)
        ),
      { concurrency: AT_ONCE }
    )
    return Object.fromEntries(outcomes)
  })
)
