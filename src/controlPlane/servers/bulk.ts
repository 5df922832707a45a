import { Effect } from "effect"
import { RequestId } from "../../contract/domain/ApiError.ts"
import { auditObject } from "../../contract/domain/AuditedRequest.ts"
import { type Forbidden, type InvalidRequest, NotFound, Unauthorized } from "../../contract/domain/errors.ts"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { BulkOutcomes, Selector } from "../../contract/domain/Selector.ts"
import { pause } from "../../shared/work/slices.ts"
import { CurrentPrincipal, KeyEnds, ServerAccess } from "../http/Principal.ts"
import { filterOf } from "./list/listQuery.ts"
import { ServerManager } from "./ServerManager.ts"
import type { NodeCallError } from "./state/nodeCalls.ts"

const AT_ONCE = 64

const named = (ids: ReadonlyArray<ServerId>) => ({ filter: { labels: [], ids: new Set(ids) } })

/**
 * Acts on selected servers, each with its outcome (spec 3.12): 404 outside the key's limits, 401 without a valid key.
 */
export const makeBulk = Effect.gen(function* () {
  const servers = yield* ServerManager
  const access = yield* ServerAccess
  const keyEnds = yield* KeyEnds
  return Effect.fn("bulk")(function* (
    selector: Selector,
    act: (id: ServerId) => Effect.Effect<void, NodeCallError | Forbidden>
  ): Effect.fn.Return<ReadonlyArray<readonly [ServerId, BulkOutcomes[string]]>, InvalidRequest> {
    const page = yield* servers.select({ filter: yield* filterOf(selector) })
    const { ids = [] } = selector
    const others = ids.length === 0 ? [] : (yield* servers.select(named(ids))).ids
    const known = new Set([...page.ids, ...others])
    const unknown = ids.filter((id) => !known.has(id))
    const request_id = (yield* RequestId) ?? ""
    const ended = yield* Effect.forkChild(keyEnds(yield* CurrentPrincipal), { startImmediately: true })
    const allowed = Effect.fnUntraced(function* (id: ServerId) {
      if (ended.pollUnsafe() !== undefined) return yield* Unauthorized.keyEnded()
      if (!known.has(id) || !(yield* access.mayRead(id))) {
        return yield* yield* access.explained(id, NotFound.server(id))
      }
    })
    return yield* Effect.forEach(
      [...page.ids, ...new Set(unknown)],
      (id) =>
        Effect.andThen(Effect.andThen(pause, allowed(id)), auditObject(id)(act(id))).pipe(
          Effect.match({
            onFailure: ({ code, detail, hint, status }) => ({ code, status, detail, hint, request_id }),
            onSuccess: () => ({ status: 200 as const })
          }),
          Effect.map((outcome) => [id, outcome] as const)
        ),
      { concurrency: AT_ONCE }
    )
  })
})
