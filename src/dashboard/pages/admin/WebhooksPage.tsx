import { useState } from "preact/hooks"
import type { Webhook } from "../../api/types.ts"
import { useGet } from "../../api/useGet.ts"
import type { View } from "../../dom/el.ts"
import { counted } from "../../dom/format.ts"
import { openDialog } from "../../parts/Dialog.tsx"
import { action, drawReply, empty } from "../../parts/parts.tsx"
import { useTick } from "../../state/useTick.ts"
import { Secret } from "./Secret.tsx"
import { WebhookCard } from "./WebhookCard.tsx"
import { type NewWebhook, WebhookDialog } from "./WebhookDialog.tsx"

const EVERY = 5000

/** All webhooks: created, tested, replayed and deleted here. */
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
      <div class="across admin-head">
        <span class="muted">{reply?.ok === true ? counted(all.length, "webhook") : ""}</span>
        <span class="grow" />
        {action({ text: "New webhook", icon: "plus", class: "primary", onClick: create })}
      </div>
      {created !== undefined && (
        <Secret
          title={`The secret of ${created.id}`}
          secret={created.secret}
          onClose={() => setCreated(undefined)}
        />
      )}
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
