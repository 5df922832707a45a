import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { describeAudit, withoutAudit } from "../../contract/domain/AuditedRequest.ts"
import { ServerId } from "../../contract/domain/Id.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { pageAfter, pageResponse } from "../http/requestUrl.ts"
import { Schedules } from "./Schedules.ts"

/** Handlers of the routes of schedules and runs (spec 13.1). */
export const SchedulesHandlers = handlersOf(
  ApplicationApi,
  "schedules",
  Effect.fn(function* (handlers) {
    const schedules = yield* Schedules
    return handlers.handleAll({
      create: Effect.fnUntraced(function* ({ payload, query }) {
        if (query.dry_run === true) {
          yield* withoutAudit
          return HttpServerResponse.jsonUnsafe(yield* schedules.plan(payload))
        }
        const schedule = yield* schedules.create(payload)
        const headers = { location: `/api/schedules/${schedule.id}` }
        return HttpServerResponse.jsonUnsafe(schedule, { status: 201, headers })
      }),
      list: Effect.fnUntraced(function* ({ query, request }) {
        const { server_id = "" } = query
        const page = yield* schedules.list({
          ...pageAfter(query, 20),
          ...(server_id === "" ? {} : { server_id: ServerId.make(server_id) })
        })
        return pageResponse(request.url, page.schedules, page.next)
      }),
      get: ({ params }) => schedules.get(params.schedule),
      patch: ({ params, payload }) =>
        Effect.andThen(
          describeAudit({ changes: Object.keys(payload) }),
          schedules.patch(params.schedule, payload)
        ),
      remove: ({ params }) => schedules.remove(params.schedule),
      run: ({ params }) => schedules.run(params.schedule),
      runs: Effect.fnUntraced(function* ({ params, query, request }) {
        const page = yield* schedules.runs(params.schedule, pageAfter(query, 20))
        return pageResponse(request.url, page.runs, page.next)
      }),
      getRun: ({ params }) => schedules.getRun(params.run),
      cancelRun: ({ params }) => schedules.cancelRun(params.run)
    })
  })
)
