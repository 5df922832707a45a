import { Effect } from "effect"
import { ApplicationApi } from "../../contract/api/ApplicationApi.ts"
import { describeAudit } from "../../contract/domain/AuditedRequest.ts"
import { handlersOf } from "../../shared/net/requestServices.ts"
import { Webhooks } from "./Webhooks.ts"

/** Handlers of the webhook routes (spec 7). */
export const WebhooksHandlers = handlersOf(
  ApplicationApi,
  "webhooks",
  Effect.fn(function* (handlers) {
    const webhooks = yield* Webhooks
    return handlers.handleAll({
      list: () => webhooks.list,
      create: ({ payload }) => webhooks.create(payload),
      get: ({ params }) => webhooks.get(params.webhook),
      patch: ({ params, payload }) =>
        Effect.andThen(
          describeAudit({ changes: Object.keys(payload) }),
          webhooks.patch(params.webhook, payload)
        ),
      remove: ({ params }) => webhooks.remove(params.webhook),
      test: ({ params }) => webhooks.test(params.webhook),
      replay: ({ params, payload }) => webhooks.replay(params.webhook, payload.cursor),
      deliveries: ({ params }) => webhooks.deliveries(params.webhook)
    })
  })
)
