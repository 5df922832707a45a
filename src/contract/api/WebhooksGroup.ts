import { Schema } from "effect"
import { HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { Conflict, CursorExpired } from "../domain/errors.ts"
import { optionalInputs } from "../domain/optionalInput.ts"
import { Webhook, WebhookDelivery, webhookFields } from "../domain/Webhook.ts"
import { del, get, patch, post } from "./endpoint.ts"
import { Authorization } from "./middleware.ts"

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
    get("list", "/webhooks", "List webhooks", { success: Schema.Array(Webhook) }),
    post("create", "/webhooks", "Create a webhook; the response has its secret, once", {
      audited: "webhook.create",
      payload: CreateWebhook,
      success: CreatedWebhook.pipe(HttpApiSchema.status(201)),
      errors: [Conflict]
    }),
    get("get", "/webhooks/:webhook", "One webhook", { success: Webhook }),
    patch("patch", "/webhooks/:webhook", "Change a webhook; a parked one continues", {
      audited: "webhook.patch",
      payload: PatchWebhook,
      success: Webhook,
      errors: [Conflict]
    }),
    del("remove", "/webhooks/:webhook", "Delete a webhook", {
      audited: "webhook.delete",
      success: HttpApiSchema.Empty(200),
      errors: [Conflict]
    }),
    post("test", "/webhooks/:webhook/test", "Send a test message now; the response says how it went", {
      audited: "webhook.test",
      success: WebhookDelivery
    }),
    post(
      "replay",
      "/webhooks/:webhook/replay",
      "Deliver the events after a cursor again; a parked webhook continues",
      {
        audited: "webhook.replay",
        payload: Schema.Struct({
          cursor: Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)).annotate({
            description: "The events after this cursor are delivered, also those that were delivered before."
          })
        }).annotate({ identifier: "ReplayWebhook" }),
        success: Webhook,
        errors: [CursorExpired]
      }
    ),
    get("deliveries", "/webhooks/:webhook/deliveries", "The last 100 attempts, newest first", {
      success: Schema.Array(WebhookDelivery)
    })
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Webhooks" })) {}
