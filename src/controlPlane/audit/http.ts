import { Effect } from "effect"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { filled, pageAfter, pageResponse } from "../http/requestUrl.ts"
import type { AuditQuery } from "../store/repos/AuditRepo.ts"
import { AuditLog } from "./AuditLog.ts"

const PAGE = 100

const resultOf = (result: string): AuditQuery["result"] =>
  result === "" ? undefined : result === "ok" || result === "refused" ? result : Number(result)

/** `GET /api/audit` (spec 6.6). */
export const AuditHandlers = handlersOf(
  ApplicationApi,
  "audit",
  Effect.fn(function* (handlers) {
    const log = yield* AuditLog
    return handlers.handleAll({
      list: Effect.fnUntraced(function* ({ query, request }) {
        const { action, actor, object, since = "", until = "" } = query
        const { limit, ...page } = pageAfter(query, PAGE)
        const result = resultOf(query.result ?? "")
        const entries = yield* log.find({
          ...page,
          // One more: whether there is a next page.
          limit: limit + 1,
          ...(since === "" ? {} : { since: Date.parse(since) }),
          ...(until === "" ? {} : { until: Date.parse(until) }),
          ...filled({ actor, action, object }),
          ...(result === undefined ? {} : { result })
        })
        const shown = entries.slice(0, limit)
        return pageResponse(request.url, shown, entries.length > limit ? shown.at(-1)?.id : undefined)
      })
    })
  })
)
