import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { ApplicationApi } from "../../../contract/api/ApplicationApi.ts"
import { withoutAudit } from "../../../contract/domain/AuditedRequest.ts"
import { handlersOf } from "../../../shared/net/requestServices.ts"
import { linkOf, pageAfter } from "../../http/requestUrl.ts"
import { Rollouts } from "./Rollouts.ts"

const respond = (url: string, body: unknown, next: string | undefined) =>
  HttpServerResponse.jsonUnsafe(body, { headers: linkOf(url, next) })

/** Handlers of the routes of rollouts (spec 3.13). */
export const RolloutsHandlers = handlersOf(
  ApplicationApi,
  "rollouts",
  Effect.fn(function* (handlers) {
    const rollouts = yield* Rollouts
    return handlers.handleAll({
      create: Effect.fnUntraced(function* ({ payload, query, request }) {
        if (query.dry_run === true) {
          yield* withoutAudit
          const { next, plan } = yield* rollouts.plan(payload.selector, pageAfter(query, 100))
          return respond(request.url, plan, next)
        }
        const rollout = yield* rollouts.create(payload)
        const headers = { location: `/api/rollouts/${rollout.id}` }
        return HttpServerResponse.jsonUnsafe(rollout, { status: 201, headers })
      }),
      list: Effect.fnUntraced(function* ({ query, request }) {
        const page = yield* rollouts.list(pageAfter(query, 20))
        return respond(request.url, page.rollouts, page.next)
      }),
      get: ({ params }) => rollouts.get(params.rollout),
      pause: ({ params }) => rollouts.pause(params.rollout),
      resume: ({ params }) => rollouts.resume(params.rollout),
      abort: ({ params }) => rollouts.abort(params.rollout)
    })
  })
)
