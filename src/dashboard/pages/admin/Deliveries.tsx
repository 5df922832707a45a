import { useState } from "preact/hooks"
import { segment } from "../../api/http.ts"
import type { WebhookDelivery } from "../../api/types.ts"
import { useGet } from "../../api/useGet.ts"
import { classes, type View } from "../../dom/el.ts"
import { count, dateTime } from "../../dom/format.ts"
import { chip } from "../../parts/parts.tsx"

const hasFailed = ({ error }: WebhookDelivery): boolean => error !== undefined

const Delivery = (one: WebhookDelivery): View => (
  <li key={`${one.message_id} ${one.at}`} class="across event">
    <time dateTime={one.at} class="is-date">
      {dateTime(one.at)}
    </time>
    <span class={classes("dot", hasFailed(one) ? "is-unknown" : "is-running")} aria-hidden="true" />
    <span class="audit-action">{one.cursor === null ? "test" : one.topic}</span>
    {one.server_id !== null && <code class="server-id">{one.server_id}</code>}
    <span class="event-words" title={one.error ?? ""}>
      {one.error ?? `status ${one.status}`}
    </span>
    <span class="grow" />
    <span class="muted">{`${count(one.duration_ms)} ms`}</span>
  </li>
)

/** The last attempts of a webhook, the failed ones first of all. */
export const Deliveries = ({ again, id }: { readonly id: string; readonly again: number }): View => {
  const reply = useGet<ReadonlyArray<WebhookDelivery>>(`/api/webhooks/${segment(id)}/deliveries`, again)
  const [onlyFailed, setOnlyFailed] = useState(false)
  if (reply === undefined)
    return (
      <p class="muted" aria-busy="true">
        Loading the deliveries
      </p>
    )
  if (!reply.ok) return <p class="problem">{reply.detail}</p>
  const failed = reply.body.filter(hasFailed)
  const shown = onlyFailed ? failed : reply.body
  return (
    <div class="stack deliveries">
      <div class="across chips" role="group" aria-label="Filter deliveries">
        {chip({
          text: "All",
          count: reply.body.length,
          isChosen: !onlyFailed,
          onChoose: () => setOnlyFailed(false)
        })}
        {chip({
          text: "Failed",
          count: failed.length,
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
}
