import type { ComponentChildren } from "preact"
import { useState } from "preact/hooks"
import { request, segment, useGet } from "../../api/http.ts"
import type { Webhook, WebhookDelivery } from "../../api/types.ts"
import { onText, type View } from "../../dom/el.ts"
import { count, counted, dateTime } from "../../dom/format.ts"
import { confirmRemoval, FormDialog, openDialog } from "../../parts/Dialog.tsx"
import { eventItem } from "../../parts/eventList.tsx"
import { numberIn } from "../../parts/fieldInput.tsx"
import { Menu, type MenuItem } from "../../parts/Menu.tsx"
import {
  action,
  adminHead,
  chip,
  drawReply,
  empty,
  fact,
  label,
  shownSecret,
  status
} from "../../parts/parts.tsx"
import { done, failed } from "../../state/notices.ts"
import { useTick } from "../../state/whileVisible.ts"
import { type NewWebhook, WebhookDialog } from "./WebhookDialog.tsx"

const colours = { active: "running", retrying: "starting", parked: "unknown" } as const

const pathOf = ({ id }: Webhook): string => `/api/webhooks/${segment(id)}`

const Replay = (props: {
  readonly webhook: Webhook
  readonly onClose: () => void
  readonly onChanged: () => void
}): View => {
  const { onChanged, onClose, webhook } = props
  const [cursor, setCursor] = useState(String(webhook.cursor))
  return (
    <FormDialog
      title={`Replay ${webhook.id}`}
      button="Replay"
      whyNot={cursor === "" ? "Enter a cursor first." : undefined}
      onSubmit={() => request("POST", `${pathOf(webhook)}/replay`, { body: { cursor: numberIn(cursor) } })}
      onDone={() => {
        done(`${webhook.id} delivers the events after ${cursor}`)
        onChanged()
      }}
      onClose={onClose}
    >
      <p>{`All events up to ${webhook.cursor} are delivered. The webhook delivers those after a cursor again, and a parked one continues.`}</p>
      <label class="field">
        <span>Events after</span>
        <input
          value={cursor}
          inputMode="numeric"
          autocomplete="off"
          onInput={onText((text) => setCursor(text.replace(/\D/g, "")))}
        />
      </label>
    </FormDialog>
  )
}

const itemsOf = (webhook: Webhook, onChanged: () => void): ReadonlyArray<MenuItem> => {
  const whyNot = webhook.source === "file" ? "The file of MUSTER_WEBHOOKS defines it." : undefined
  return [
    {
      text: "Replay…",
      onChoose: () =>
        openDialog((onClose) => <Replay webhook={webhook} onClose={onClose} onChanged={onChanged} />)
    },
    {
      text: "Change…",
      whyNot,
      onChoose: () =>
        openDialog((onClose) => <WebhookDialog webhook={webhook} onClose={onClose} onStored={onChanged} />)
    },
    {
      text: "Delete…",
      whyNot,
      isDangerous: true,
      onChoose: () =>
        confirmRemoval({
          verb: "Delete",
          name: webhook.id,
          text: "No further event is delivered to it. Its secret and the list of its deliveries are deleted.",
          path: pathOf(webhook),
          onEnded: onChanged
        })
    }
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
        <div class="across chips" role="group" aria-label="Filter deliveries">
          {chip({
            text: "All",
            count: all.length,
            isChosen: !onlyFailed,
            onChoose: () => setOnlyFailed(false)
          })}
          {chip({
            text: "Failed",
            count: failures.length,
            isChosen: onlyFailed,
            onChoose: () => setOnlyFailed(true)
          })}
        </div>
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
  const [tick, again] = useTick(EVERY)
  const [created, setCreated] = useState<NewWebhook | undefined>(undefined)
  const reply = useGet<ReadonlyArray<Webhook>>("/api/webhooks", tick)
  const all = reply?.ok === true ? reply.body : []
  const create = () =>
    openDialog((onClose) => (
      <WebhookDialog
        onClose={onClose}
        onStored={(webhook) => {
          if ("secret" in webhook) setCreated(webhook)
          again()
        }}
      />
    ))
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
