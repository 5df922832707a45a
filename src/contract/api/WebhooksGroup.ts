import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Conflict, CursorExpired, NotFound } from "../domain/errors.ts"
import { optionalInputs } from "../domain/optionalInput.ts"
import { Webhook, WebhookDelivery, WebhookId, webhookFields } from "../domain/Webhook.ts"
import { Authorization, route } from "./middleware.ts"

const params = { webhook: WebhookId.annotate({ description: "The id of the webhook." }) }
const { blueprint_id, description, format, label, topics, url } = webhookFields

const optional = {
  topics: topics.annotate({ description: "Default: `status`, `crash`, `deleted`." }),
  format: format.annotate({ description: "Default: `json`, the message of the streams with its `Cursor`." }),
  blueprint_id: blueprint_id.annotate({ description: "Only events of servers of this blueprint." }),
  label: label.annotate({
    description: "Only events of servers whose labels meet `k=v`, `k!=v`, `k` or `!k`."
  }),
  description
}

/** Body of `POST /api/webhooks` (spec 7). */
export const CreateWebhook = Schema.Struct({ url, ...optionalInputs(optional) }).annotate({
  identifier: "CreateWebhook"
})
export type CreateWebhook = typeof CreateWebhook.Type

/** Body of `PATCH /api/webhooks/:webhook`; null removes a condition. */
export const PatchWebhook = Schema.Struct({
  url: Schema.optionalKey(url),
  topics: Schema.optionalKey(optional.topics),
  format: Schema.optionalKey(optional.format),
  blueprint_id: Schema.optionalKey(Schema.NullOr(optional.blueprint_id)),
  label: Schema.optionalKey(Schema.NullOr(optional.label)),
  description: Schema.optionalKey(Schema.NullOr(description))
}).annotate({ identifier: "PatchWebhook" })
export type PatchWebhook = typeof PatchWebhook.Type

/** A new webhook with its secret, which is shown only here. */
export const CreatedWebhook = Schema.Struct({ ...Webhook.fields, secret: Schema.String }).annotate({
  identifier: "CreatedWebhook"
})

/** Webhooks: events over HTTP POST, signed, at least once (spec 7). */
export class WebhooksGroup extends HttpApiGroup.make("webhooks")
  .add(
    HttpApiEndpoint.get("list", "/webhooks", { success: Schema.Array(Webhook) }).annotateMerge(
      route("List webhooks")
    ),
    HttpApiEndpoint.post("create", "/webhooks", {
      payload: CreateWebhook,
      success: CreatedWebhook.pipe(HttpApiSchema.status(201)),
      error: Conflict
    }).annotateMerge(
      route("Create a webhook; the response has its secret, once", { audited: "webhook.create" })
    ),
    HttpApiEndpoint.get("get", "/webhooks/:webhook", {
      params,
      success: Webhook,
      error: NotFound
    }).annotateMerge(route("One webhook")),
    HttpApiEndpoint.patch("patch", "/webhooks/:webhook", {
      params,
      payload: PatchWebhook,
      success: Webhook,
      error: [NotFound, Conflict]
    }).annotateMerge(route("Change a webhook; a parked one continues", { audited: "webhook.patch" })),
    HttpApiEndpoint.delete("remove", "/webhooks/:webhook", {
      params,
      success: HttpApiSchema.Empty(200),
      error: [NotFound, Conflict]
    }).annotateMerge(route("Delete a webhook", { audited: "webhook.delete" })),
    HttpApiEndpoint.post("test", "/webhooks/:webhook/test", {
      params,
      success: WebhookDelivery,
      error: NotFound
    }).annotateMerge(
      route("Send a test message now; the response says how it went", { audited: "webhook.test" })
    ),
    HttpApiEndpoint.post("replay", "/webhooks/:webhook/replay", {
      params,
      payload: Schema.Struct({
        cursor: Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)).annotate({
          description: "The events after this cursor are delivered, also those that were delivered before."
        })
      }).annotate({ identifier: "ReplayWebhook" }),
      success: Webhook,
      error: [NotFound, CursorExpired]
    }).annotateMerge(
      route("Deliver the events after a cursor again; a parked webhook continues", {
        audited: "webhook.replay"
      })
    ),
    HttpApiEndpoint.get("deliveries", "/webhooks/:webhook/deliveries", {
      params,
      success: Schema.Array(WebhookDelivery),
      error: NotFound
    }).annotateMerge(route("The last 100 attempts, newest first"))
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Webhooks" })) {}
