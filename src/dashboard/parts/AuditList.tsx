import type { ComponentChildren } from "preact"
import { segment, useGet, useTick } from "../api/http.ts"
import type { AuditEntry } from "../api/types.ts"
import type { View } from "../dom/el.ts"
import { counted, dateTime } from "../dom/format.ts"
import { isLoaded, nameOf } from "../state/servers.ts"
import { eventItem, serverLink } from "./eventList.tsx"
import { drawReply } from "./parts.tsx"

/** Milliseconds between two readings. */
const EVERY = 10_000
const MOST = 200

const objectOf = ({ object: { count, id, kind } }: AuditEntry): View | string => {
  if (id === null) return count === undefined ? kind : counted(count, kind)
  return kind === "server" ? serverLink(id, nameOf(id)) : <code>{id}</code>
}

const Entry = (entry: AuditEntry): View => {
  const { action, actor, at, changes, client, id, paths = [], reason = "", repeated, result } = entry
  const isRefused = result.status >= 400
  const words = [
    isRefused ? `refused with ${result.status}` : "",
    repeated === undefined ? "" : `${repeated} times`,
    [...changes, ...paths].join(", "),
    reason
  ]
  const from = client ?? (actor.name === "service" ? "by itself" : "a command beside the service")
  return eventItem({
    id,
    at,
    time: dateTime(at),
    colour: isRefused ? "unknown" : "running",
    words: words.filter((word) => word !== "").join("; "),
    before: [<span class="audit-action">{action}</span>, objectOf(entry)],
    after: [
      <span class="muted" title={from}>
        {actor.name}
      </span>,
      actor.scope !== null && <span class="tag">{actor.scope}</span>
    ]
  })
}

/** The newest audit entries, without tickets, of one object unless empty; for the scope AppAdmin only. */
export const AuditList = ({ object }: { readonly object: string }): ComponentChildren => {
  const [tick] = useTick(EVERY)
  const only = object === "" ? "" : `&object=${segment(object)}`
  const reply = useGet<ReadonlyArray<AuditEntry>>(`/api/audit?limit=1000${only}`, tick)
  // The names of the servers.
  isLoaded.value
  return drawReply(reply, "Loading the audit log", (all) => {
    // Every page of the dashboard opens streams with tickets.
    const entries = all.filter(({ action }) => action !== "ticket.create").slice(0, MOST)
    return entries.length === 0 ? (
      <p class="muted">No request is recorded.</p>
    ) : (
      <ol class="events card" aria-label="Audit log, newest first">
        {entries.map(Entry)}
      </ol>
    )
  })
}
