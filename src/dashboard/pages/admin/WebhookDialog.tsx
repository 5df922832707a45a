import { request, segment } from "../../api/http.ts"
import type { Webhook, WebhookTopic } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { FormDialog } from "../../parts/Dialog.tsx"
import { checks, useForm } from "../../parts/fieldInput.tsx"

export type NewWebhook = Webhook & { readonly secret: string }

interface Form {
  readonly url: string
  readonly topics: ReadonlyArray<WebhookTopic>
  readonly format: string
  readonly blueprint: string
  readonly label: string
  readonly description: string
}

const topics: ReadonlyArray<readonly [WebhookTopic, string]> = [
  ["status", "Changes of the status"],
  ["crash", "Crashes"],
  ["deleted", "Deletions"],
  ["install", "Installations"],
  ["expiring", "Expiries, 60 s before"],
  ["problem", "Refused starts"]
]

const formats = [
  ["json", "JSON: the message of the streams"],
  ["discord", "Discord: a line of text"],
  ["slack", "Slack: a line of text"]
] as const

const formOf = (webhook: Webhook | undefined): Form => ({
  url: webhook?.url ?? "",
  topics: webhook?.topics ?? ["status", "crash", "deleted"],
  format: webhook?.format ?? "json",
  blueprint: webhook?.blueprint_id ?? "",
  label: webhook?.label ?? "",
  description: webhook?.description ?? ""
})

/** The body of a creation, or with `isChange` of a change, in which an empty field removes the condition. */
const bodyOf = (values: Form, isChange: boolean): Record<string, unknown> => {
  const optional = (name: string, text: string) =>
    text.trim() === "" ? (isChange ? { [name]: null } : {}) : { [name]: text.trim() }
  return {
    url: values.url.trim(),
    topics: values.topics,
    format: values.format,
    ...optional("blueprint_id", values.blueprint),
    ...optional("label", values.label),
    ...optional("description", values.description)
  }
}

export const WebhookDialog = (props: {
  readonly webhook?: Webhook
  readonly onClose: () => void
  readonly onStored: (webhook: Webhook | NewWebhook) => void
}): View => {
  const { onClose, onStored, webhook } = props
  const { field, set, values } = useForm(() => formOf(webhook))
  const whyNot =
    values.url.trim() === ""
      ? "Enter an address first."
      : values.topics.length === 0
        ? "Choose a topic first."
        : undefined
  const submit = () =>
    webhook === undefined
      ? request<NewWebhook>("POST", "/api/webhooks", { body: bodyOf(values, false) })
      : request<Webhook>("PATCH", `/api/webhooks/${segment(webhook.id)}`, { body: bodyOf(values, true) })
  return (
    <FormDialog<Webhook | NewWebhook>
      title={webhook === undefined ? "New webhook" : `Change ${webhook.id}`}
      button={webhook === undefined ? "Create the webhook" : "Store"}
      whyNot={whyNot}
      onSubmit={submit}
      onDone={onStored}
      onClose={onClose}
      class="is-wide"
    >
      {field("url", "Address", "http or https; private addresses need MUSTER_WEBHOOK_ALLOW_PRIVATE=true.")}
      {checks({
        name: "Topics",
        choices: topics,
        chosen: values.topics,
        onChange: (chosen) => set({ topics: chosen })
      })}
      <div class="fields">
        {field("format", "Format", "", { kind: "choice", choices: formats })}
        {field("blueprint", "Blueprint", "Only events of its servers. Empty: all.")}
        {field("label", "Label", "Only servers with k=v, k!=v, k or !k. Empty: all.")}
        {field("description", "Description", "One line for people.")}
      </div>
    </FormDialog>
  )
}
