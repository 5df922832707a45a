import type { ComponentChildren } from "preact"
import { useState } from "preact/hooks"
import { request, segment, useGet, useList } from "../../api/http.ts"
import type { Webhook, WebhookDelivery, WebhookTopic } from "../../api/types.ts"
import type { View } from "../../dom/el.ts"
import { count, counted, dateTime } from "../../dom/format.ts"
import { FormDialog, openDialog, removalItem } from "../../parts/Dialog.tsx"
import { eventItem } from "../../parts/eventList.tsx"
import { bodyOf, checks, field, useForm } from "../../parts/form.tsx"
import { Menu, type MenuItem } from "../../parts/Menu.tsx"
import {
  action,
  adminHead,
  chips,
  drawReply,
  empty,
  fact,
  label,
  shownSecret,
  status
} from "../../parts/parts.tsx"
import { done, failed } from "../../state/notices.ts"

const colours = { active: "running", retrying: "starting", parked: "unknown" } as const

const pathOf = ({ id }: Webhook): string => `/api/webhooks/${segment(id)}`

type NewWebhook = Webhook & { readonly secret: string }

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

const settings = [
  field("text", "url", "Address", "http or https; private addresses need MUSTER_WEBHOOK_ALLOW_PRIVATE=true."),
  field("choice", "format", "Format", "", { choices: formats }),
  field("text", "blueprint_id", "Blueprint", "Only events of its servers. Empty: all."),
  field("text", "label", "Label", "Only servers with k=v, k!=v, k or !k. Empty: all."),
  field("text", "description", "Description", "One line for people.")
]

const WebhookDialog = (props: {
  readonly webhook?: Webhook
  readonly onStored: (webhook: Webhook | NewWebhook) => void
}): View => {
  const { onStored, webhook } = props
  const { inputs, texts } = useForm(() => {
    const { blueprint_id = "", description = "", format = "json", label = "", url = "" } = webhook ?? {}
    return { blueprint_id, description, format, label, url }
  })
  const [chosen, setChosen] = useState<ReadonlyArray<WebhookTopic>>(
    webhook?.topics ?? ["status", "crash", "deleted"]
  )
  const noTopic = chosen.length === 0 ? "Choose a topic first." : undefined
  // In a change, null removes a condition.
  const body = { ...bodyOf(settings, texts, webhook !== undefined), topics: chosen }
  return (
    <FormDialog<Webhook | NewWebhook>
      title={webhook === undefined ? "New webhook" : `Change ${webhook.id}`}
      button={webhook === undefined ? "Create the webhook" : "Save"}
      whyNot={texts.url?.trim() ? noTopic : "Enter an address first."}
      onSubmit={() =>
        webhook === undefined
          ? request<NewWebhook>("POST", "/api/webhooks", { body })
          : request<Webhook>("PATCH", pathOf(webhook), { body })
      }
      onDone={onStored}
      class="is-wide"
    >
      {inputs(settings)}
      {checks({ name: "Topics", choices: topics, chosen, onChange: setChosen })}
    </FormDialog>
  )
}

const Replay = (props: { readonly webhook: Webhook; readonly onChanged: () => void }): View => {
  const { onChanged, webhook } = props
  const cursor = [field("number", "cursor", "Events after")]
  const { inputs, texts } = useForm({ cursor: String(webhook.cursor) })
  return (
    <FormDialog
      title={`Replay ${webhook.id}`}
      button="Replay"
      whyNot={texts.cursor === "" ? "Enter a cursor first." : undefined}
      onSubmit={() => request("POST", `${pathOf(webhook)}/replay`, { body: bodyOf(cursor, texts) })}
      onDone={() => {
        done(`${webhook.id} delivers the events after ${texts.cursor}`)
        onChanged()
      }}
    >
      <p>{`All events up to ${webhook.cursor} are delivered. The webhook delivers those after a cursor again, and a parked one continues.`}</p>
      {inputs(cursor)}
    </FormDialog>
  )
}

const itemsOf = (webhook: Webhook, onChanged: () => void): ReadonlyArray<MenuItem> => {
  const whyNot = webhook.source === "file" ? "The file of MUSTER_WEBHOOKS defines it." : undefined
  return [
    {
      text: "Replay…",
      onChoose: () => openDialog(<Replay webhook={webhook} onChanged={onChanged} />)
    },
    {
      text: "Change…",
      whyNot,
      onChoose: () => openDialog(<WebhookDialog webhook={webhook} onStored={onChanged} />)
    },
    removalItem({
      verb: "Delete",
      whyNot,
      name: webhook.id,
      text: "No further event is delivered to it. Its secret and the list of its deliveries are deleted.",
      path: pathOf(webhook),
      onEnded: onChanged
    })
  ]
}

const hasFailed = ({ error }: WebhookDelivery): boolean => error !== undefined

const Delivery = (one: WebhookDelivery): View =>
  eventItem({
    id: `${one.message_id} ${one.at}`,
    at: one.at,
    time: dateTime(one.at),
    colour: hasFailed(one) ? "unknown" : "running",
    words: one.error ?? `status ${one.status}`,
    before: [
      <span class="audit-action">{one.cursor === null ? "test" : one.topic}</span>,
      one.server_id !== null && <code class="server-id">{one.server_id}</code>
    ],
    after: <span class="muted">{`${count(one.duration_ms)} ms`}</span>
  })

const Deliveries = ({ again, id }: { readonly id: string; readonly again: number }): ComponentChildren => {
  const reply = useGet<ReadonlyArray<WebhookDelivery>>(`/api/webhooks/${segment(id)}/deliveries`, again)
  const [onlyFailed, setOnlyFailed] = useState(false)
  return drawReply(reply, "Loading the deliveries", (all) => {
    const failures = all.filter(hasFailed)
    const shown = onlyFailed ? failures : all
    return (
      <div class="stack deliveries">
        {chips({
          name: "Filter deliveries",
          chosen: onlyFailed,
          choices: [
            [false, "All", all.length],
            [true, "Failed", failures.length]
          ],
          onChoose: setOnlyFailed
        })}
        {shown.length === 0 ? (
          <p class="muted">{onlyFailed ? "No delivery has failed." : "Nothing was delivered yet."}</p>
        ) : (
          <ol class="events" aria-label="Deliveries, newest first" tabIndex={0}>
            {shown.map(Delivery)}
          </ol>
        )}
      </div>
    )
  })
}

const WebhookCard = (props: {
  readonly webhook: Webhook
  readonly tick: number
  readonly onChanged: () => void
}): View => {
  const { onChanged, tick, webhook } = props
  const { blueprint_id, cursor, description, failing_since, failure, format, id, state, topics, url } =
    webhook
  const [isTesting, setTesting] = useState(false)
  const [isOpen, setOpen] = useState(false)
  const test = async () => {
    setTesting(true)
    const reply = await request<WebhookDelivery>("POST", `${pathOf(webhook)}/test`)
    setTesting(false)
    if (!reply.ok) failed("The test was not sent", reply)
    else if (reply.body.error === undefined)
      done(`${id} has accepted the test`, `Status ${reply.body.status} after ${reply.body.duration_ms} ms.`)
    else failed(`${id} has not accepted the test`, { detail: reply.body.error, hint: "" })
    onChanged()
  }
  return (
    <article class="stack card webhook" aria-label={`Webhook ${id}`}>
      <div class="across webhook-head">
        <h2>{description ?? id}</h2>
        {status(state, colours[state])}
        {webhook.source === "file" && <span class="tag">file</span>}
        <span class="grow" />
        {action({ text: "Send a test", icon: "send", isBusy: isTesting, onClick: () => void test() })}
        <Menu label={`Actions on ${id}`} class="ghost square" items={itemsOf(webhook, onChanged)} />
      </div>
      {failure !== undefined && (
        <p class="attention is-failed">
          <span>{`${state === "parked" ? "Parked: no event is delivered until it is replayed or changed. " : ""}Fails since ${failing_since === undefined ? "now" : dateTime(failing_since)}: ${failure}`}</span>
        </p>
      )}
      <dl class="facts">
        {fact("Address", <code>{url}</code>)}
        {fact("Id", <code>{id}</code>)}
        {fact("Topics", <div class="labels">{topics.map(label)}</div>)}
        {fact("Format", format)}
        {blueprint_id !== undefined && fact("Blueprint", blueprint_id)}
        {webhook.label !== undefined && fact("Label", webhook.label)}
        {fact("Delivered up to", `event ${count(cursor)}`)}
      </dl>
      <div>
        {action({
          text: isOpen ? "Hide the deliveries" : "Show the deliveries",
          class: "link",
          onClick: () => setOpen(!isOpen)
        })}
      </div>
      {isOpen && <Deliveries id={id} again={tick} />}
    </article>
  )
}

const EVERY = 5000

export const WebhooksPage = (): View => {
  const { again, all, reply, tick } = useList<Webhook>("/api/webhooks", EVERY)
  const [created, setCreated] = useState<NewWebhook | undefined>(undefined)
  const create = () =>
    openDialog(
      <WebhookDialog
        onStored={(webhook) => {
          if ("secret" in webhook) setCreated(webhook)
          again()
        }}
      />
    )
  return (
    <div class="stack admin">
      {adminHead(reply?.ok === true ? counted(all.length, "webhook") : "", "New webhook", create)}
      {created !== undefined &&
        shownSecret(`The secret of ${created.id}`, created.secret, () => setCreated(undefined))}
      {drawReply(reply, "Loading the webhooks", () =>
        all.length === 0 ? (
          empty(
            "send",
            "No webhook yet",
            "A webhook sends events to an address, such as crashes to a channel of Discord or Slack."
          )
        ) : (
          <div class="stack webhooks">
            {all.map((webhook) => (
              <WebhookCard key={webhook.id} webhook={webhook} tick={tick} onChanged={again} />
            ))}
          </div>
        )
      )}
    </div>
  )
}
