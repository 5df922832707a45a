import { Effect } from "effect"
import type { BulkOutcomes, Selector } from "../api/selector.ts"
import { auditObject } from "../domain/AuditedRequest.ts"
import { type InvalidRequest, NotFound } from "../domain/errors.ts"
import type { ServerId } from "../domain/Id.ts"
import { RequestId } from "../domain/RequestId.ts"
import { filterOf } from "./listQuery.ts"
import type { NodeCallError } from "./records/nodeErrors.ts"
import { ServerManager } from "./ServerManager.ts"

/** Servers of a bulk action that are worked on at a time. */
const AT_ONCE = 64

const named = (ids: ReadonlyArray<ServerId>) => ({ filter: { labels: [], ids: new Set(ids) } })

/** Acts on all servers that a selector selects; each has an outcome of its own (life.md, "Changing"). */
export const makeBulk = Effect.map(ServerManager, (servers) =>
  Effect.fn("bulk")(function* (
    selector: Selector,
    act: (id: ServerId) => Effect.Effect<void, NodeCallError>
  ): Effect.fn.Return<BulkOutcomes, InvalidRequest> {
    const page = yield* servers.select({ filter: yield* filterOf(selector) })
    const { ids = [] } = selector
    const known = new Set([...page.ids, ...(yield* servers.select(named(ids))).ids])
    const unknown = ids.filter((id) => !known.has(id))
    const request_id = (yield* RequestId) ?? ""
    const outcomes = yield* Effect.forEach(
      [...page.ids, ...new Set(unknown)],
      (id) =>
        (known.has(id) ? auditObject(id)(act(id)) : Effect.fail(NotFound.server(id))).pipe(
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
