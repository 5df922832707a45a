import { segment } from "../api/http.ts"
import type { AuditEntry } from "../api/types.ts"
import { useGet } from "../api/useGet.ts"
import { classes, type View } from "../dom/el.ts"
import { counted, dateTime } from "../dom/format.ts"
import { addressOf, follow } from "../state/router.ts"
import { titleOf } from "../state/rows.ts"
import { isLoaded, rows } from "../state/servers.ts"
import { useTick } from "../state/useTick.ts"

/** Milliseconds between two readings. */
const EVERY = 10_000
/** Entries that the list shows. */
const MOST = 200

const objectOf = ({ object: { count, id, kind } }: AuditEntry): View | string => {
  if (id === null) return count === undefined ? kind : counted(count, kind)
  if (kind !== "server") return <code>{id}</code>
  return (
    <a href={addressOf.server(id)} class="server-link" onClick={follow}>
      {titleOf(rows.get(id) ?? { id, name: "" })}
    </a>
  )
}

const Entry = ({ entry }: { readonly entry: AuditEntry }): View => {
  const { action, actor, at, changes, client, reason = "", repeated, result } = entry
  const isRefused = result.status >= 400
  const words = [
    isRefused ? `refused with ${result.status}` : "",
    repeated === undefined ? "" : `${repeated} times`,
    changes.join(", "),
    reason
  ]
    .filter((word) => word !== "")
    .join("; ")
  return (
    <li class="across event">
      <time dateTime={at} class="is-date">
        {dateTime(at)}
      </time>
      <span class={classes("dot", isRefused ? "is-unknown" : "is-running")} aria-hidden="true" />
      <span class="audit-action">{action}</span>
      {objectOf(entry)}
      {words !== "" && (
        <span class="event-words" title={words}>
          {words}
        </span>
      )}
      <span class="grow" />
      <span
        class="muted"
        title={client ?? (actor.name === "service" ? "by itself" : "a command beside the service")}
      >
        {actor.name}
      </span>
      {actor.scope !== null && <span class="tag">{actor.scope}</span>}
    </li>
  )
}

/**
 * The newest entries of the audit log, of one object unless it is empty, without tickets; only keys of the scope AppAdmin
 * read it.
 */
export const AuditList = ({ object }: { readonly object: string }): View => {
  const [tick] = useTick(EVERY)
  const reply = useGet<ReadonlyArray<AuditEntry>>(
    `/api/audit?limit=1000${object === "" ? "" : `&object=${segment(object)}`}`,
    tick
  )
  // The names of the servers.
  isLoaded.value
  if (reply === undefined) return <p class="muted">Loading the audit log</p>
  if (!reply.ok) return <p class="problem">{reply.detail}</p>
  // Every page of the dashboard opens streams with tickets.
  const entries = reply.body.filter(({ action }) => action !== "ticket.create").slice(0, MOST)
  return entries.length === 0 ? (
    <p class="muted">No request is recorded.</p>
  ) : (
    <ol class="events card" aria-label="Audit log, newest first">
      {entries.map((entry) => (
        <Entry key={entry.id} entry={entry} />
      ))}
    </ol>
  )
}
