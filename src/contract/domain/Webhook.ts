import { Schema } from "effect"
import { labelCondition, PrintableText } from "./Labels.ts"
import { NodeText } from "./NodeText.ts"
import { TimeText } from "./nowText.ts"

export const WebhookId = Schema.String.check(
  Schema.isPattern(/^[a-z0-9][a-z0-9_-]{0,62}$/u, {
    expected: "an id such as crash-alerts ([a-z0-9][a-z0-9_-]{0,62})"
  })
).pipe(Schema.brand("WebhookId"))
export type WebhookId = typeof WebhookId.Type

/** The body of a delivery: the message of the streams, or the text of a chat. */
export const WebhookFormat = Schema.Literals(["json", "discord", "slack"])
export type WebhookFormat = typeof WebhookFormat.Type

const isHttp = (text: string): boolean => {
  const url = URL.parse(text)
  return url !== null && /^https?:$/.test(url.protocol) && url.username === "" && url.password === ""
}

/** The topics that a webhook may have: those with a cursor. */
export const WebhookTopic = Schema.Literals(["status", "crash", "deleted", "install", "expiring", "problem"])
export type WebhookTopic = typeof WebhookTopic.Type

/** The fields that a caller sets (spec 7). */
export const webhookFields = {
  url: Schema.String.check(
    Schema.isMaxLength(2048),
    Schema.makeFilter(isHttp, { expected: "an http or https URL without a user" })
  ),
  topics: Schema.Array(WebhookTopic).check(Schema.isMinLength(1), Schema.isMaxLength(8)),
  blueprint_id: Schema.String.check(Schema.isMaxLength(63)),
  label: Schema.String.check(
    Schema.isMaxLength(200),
    Schema.makeFilter((text) => labelCondition(text) !== undefined, { expected: "k=v, k!=v, k or !k" })
  ),
  format: WebhookFormat,
  description: PrintableText(200)
} as const

/** The topics of a webhook that names none. */
export const DEFAULT_TOPICS: ReadonlyArray<WebhookTopic> = ["status", "crash", "deleted"]

export const WebhookSettings = Schema.Struct({
  url: webhookFields.url,
  topics: webhookFields.topics,
  blueprint_id: Schema.optionalKey(webhookFields.blueprint_id),
  label: Schema.optionalKey(webhookFields.label),
  format: webhookFields.format,
  description: Schema.optionalKey(webhookFields.description)
})
export type WebhookSettings = typeof WebhookSettings.Type

/** A webhook in responses; times RFC 3339 in UTC. */
export const Webhook = Schema.Struct({
  id: WebhookId,
  ...WebhookSettings.fields,
  /** `file`: the file of `MUSTER_WEBHOOKS` defines it. */
  source: Schema.Literals(["api", "file"]),
  /** `retrying`: the last delivery failed; `parked`: no deliveries until it is replayed or changed. */
  state: Schema.Literals(["active", "retrying", "parked"]),
  /** Events up to this cursor are delivered. */
  cursor: Schema.Int,
  created_at: TimeText,
  failing_since: Schema.optionalKey(TimeText),
  failure: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "Webhook" })
export type Webhook = typeof Webhook.Type

export const WebhookDelivery = Schema.Struct({
  /** `webhook-id` of the message, the same for all attempts. */
  message_id: Schema.String,
  /** Null for a test. */
  cursor: Schema.NullOr(Schema.Int),
  server_id: Schema.NullOr(Schema.String),
  topic: Schema.String,
  at: TimeText,
  duration_ms: Schema.Int,
  /** Unset if there was no response. */
  status: Schema.optionalKey(Schema.Int),
  /** Why the attempt failed, if it did. */
  error: Schema.optionalKey(NodeText)
}).annotate({ identifier: "WebhookDelivery" })
export type WebhookDelivery = typeof WebhookDelivery.Type
