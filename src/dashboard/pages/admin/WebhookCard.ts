import { h } from "preact"
import { useState } from "preact/hooks"
import { request, segment } from "../../api/http.ts"
import type { Webhook, WebhookDelivery } from "../../api/types.ts"
import { article, code, dd, div, dl, dt, h2, input, label, p, span, type View } from "../../dom/el.ts"
import { count, dateTime } from "../../dom/format.ts"
import { confirm, Dialog, dialogForm, openDialog } from "../../parts/Dialog.ts"
import { numberIn } from "../../parts/fieldInput.ts"
import { Menu, type MenuItem } from "../../parts/Menu.ts"
import { action, status } from "../../parts/parts.ts"
import { done, failed } from "../../state/notices.ts"
import { Deliveries } from "./Deliveries.ts"
import { WebhookDialog } from "./WebhookDialog.ts"

/** The status whose colour a state has. */
const colours = { active: "running", retrying: "starting", parked: "unknown" } as const

const pathOf = ({ id }: Webhook): string => `/api/webhooks/${segment(id)}`

/** Asks for the cursor after which events are delivered again. */
const Replay = (props: {
  readonly webhook: Webhook
  readonly onClose: () => void
  readonly onChanged: () => void
}): View => {
  const { onChanged, onClose, webhook } = props
  const [cursor, setCursor] = useState(String(webhook.cursor))
  const whyNot = cursor === "" ? "Enter a cursor first." : undefined
  const replay = async () => {
    if (whyNot !== undefined) return
    onClose()
    const reply = await request("POST", `${pathOf(webhook)}/replay`, { body: { cursor: numberIn(cursor) } })
    if (reply.ok) done(`${webhook.id} delivers the events after ${cursor}`)
    else failed(`${webhook.id} was not replayed`, reply)
    onChanged()
  }
  return h(
    Dialog,
    { title: `Replay ${webhook.id}`, onClose },
    p(
      {},
      `All events up to ${webhook.cursor} are delivered. The webhook delivers those after a cursor again, and a parked one continues.`
    ),
    dialogForm(
      () => void replay(),
      label(
        { class: "field" },
        span({}, "Events after"),
        input({
          value: cursor,
          inputMode: "numeric",
          autocomplete: "off",
          onInput: ({ currentTarget }: { readonly currentTarget: HTMLInputElement }) =>
            setCursor(currentTarget.value.replace(/\D/g, ""))
        })
      ),
      div(
        { class: "dialog-actions" },
        action({ text: "Cancel", onClick: onClose }),
        action({
          text: "Replay",
          class: "primary",
          whyNot
        })
      )
    )
  )
}

const remove = async (webhook: Webhook, onChanged: () => void): Promise<void> => {
  const reply = await request("DELETE", pathOf(webhook))
  if (reply.ok) done(`Deleted: ${webhook.id}`)
  else failed(`${webhook.id} was not deleted`, reply)
  onChanged()
}

const itemsOf = (webhook: Webhook, onChanged: () => void): ReadonlyArray<MenuItem> => {
  const whyNot = webhook.source === "file" ? "The file of MUSTER_WEBHOOKS defines it." : undefined
  return [
    {
      text: "Replay…",
      onChoose: () => openDialog((onClose) => h(Replay, { webhook, onClose, onChanged }))
    },
    {
      text: "Change…",
      whyNot,
      onChoose: () => openDialog((onClose) => h(WebhookDialog, { webhook, onClose, onStored: onChanged }))
    },
    {
      text: "Delete…",
      whyNot,
      isDangerous: true,
      onChoose: () =>
        confirm(
          `Delete ${webhook.id}?`,
          "No further event is delivered to it. Its secret and the list of its deliveries are deleted.",
          `Delete ${webhook.id}`,
          () => void remove(webhook, onChanged)
        )
    }
  ]
}

/** A webhook with its state, its deliveries, and a test. */
export const WebhookCard = (props: {
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
  const fact = (name: string, value: string | View) => div({ key: name }, dt({}, name), dd({}, value))
  return article(
    { class: "card webhook", "aria-label": `Webhook ${id}` },
    div(
      { class: "webhook-head" },
      h2({}, description ?? id),
      status(state, colours[state]),
      webhook.source === "file" && span({ class: "tag" }, "file"),
      span({ class: "grow" }),
      action({ text: "Send a test", icon: "send", isBusy: isTesting, onClick: () => void test() }),
      h(Menu, { label: `Actions on ${id}`, class: "ghost square", items: itemsOf(webhook, onChanged) })
    ),
    failure !== undefined &&
      p(
        { class: "attention is-failed" },
        span(
          {},
          `${state === "parked" ? "Parked: no event is delivered until it is replayed or changed. " : ""}Fails since ${failing_since === undefined ? "now" : dateTime(failing_since)}: ${failure}`
        )
      ),
    dl(
      { class: "facts" },
      fact("Address", code({}, url)),
      fact("Id", code({}, id)),
      fact(
        "Topics",
        div(
          { class: "labels" },
          topics.map((topic) => span({ class: "label", key: topic }, topic))
        )
      ),
      fact("Format", format),
      blueprint_id !== undefined && fact("Blueprint", blueprint_id),
      webhook.label !== undefined && fact("Label", webhook.label),
      fact("Delivered up to", `event ${count(cursor)}`)
    ),
    div(
      {},
      action({
        text: isOpen ? "Hide the deliveries" : "Show the deliveries",
        class: "link",
        onClick: () => setOpen(!isOpen)
      })
    ),
    isOpen && h(Deliveries, { id, again: tick })
  )
}
