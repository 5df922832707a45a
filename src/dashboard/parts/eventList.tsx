import type { ComponentChildren } from "preact"
import { segment, useGet, useTick } from "../api/http.ts"
import type { AuditEntry, CrashRecord, ServerEvent } from "../api/types.ts"
import { classes, type View } from "../dom/el.ts"
import { clock, counted, dateTime, duration } from "../dom/format.ts"
import { withActions } from "../dom/routeActions.ts"
import type { FeedEvent } from "../state/live.ts"
import { addressOf, follow } from "../state/router.ts"
import { problemText } from "../state/rows.ts"
import { isLoaded, nameOf } from "../state/servers.ts"
import { drawReply, empty } from "./parts.tsx"

export const wordsOf = (event: ServerEvent): readonly [string, string] => {
  switch (event.Topic) {
    case "status":
      return [event.Data.payload, event.Data.payload]
    case "crash":
      return [`crashed with code ${event.Data.payload.exit_code}: ${event.Data.payload.reason}`, "unknown"]
    case "deleted":
      return ["deleted", "offline"]
    case "install": {
      const { phase, reason, step } = event.Data.payload
      if (phase === "failed") return [withActions(`installation failed: ${reason ?? "no reason"}`), "unknown"]
      if (phase === "ready") return [step === undefined ? "installed" : `installed, step ${step}`, "running"]
      if (phase === "pending") return ["waits for its installation", "installing"]
      return [step === undefined ? "installation started" : `installing, step ${step}`, "installing"]
    }
    case "expiring":
      return [`expires at ${clock(event.Data.payload.expires_at)}`, "stopping"]
    case "problem": {
      const text = problemText(event.Data.payload)
      return text === "" ? ["can be started again", "offline"] : [text, "unknown"]
    }
    case "operation":
      return [`${event.Data.payload.kind} ${event.Data.payload.state}`, "offline"]
    case "schedule": {
      const { name, reason, state } = event.Data.payload
      return [`schedule ${name} ${state}${reason === undefined ? "" : `: ${reason}`}`, "unknown"]
    }
    case "backup":
      return [`backup ${event.Data.payload.state}`, "offline"]
    case "stats":
      return ["measured", "offline"]
  }
}

export const serverLink = (id: string, name: string): View => (
  <a href={addressOf.server(id)} class="server-link" onClick={follow}>
    {name}
  </a>
)

/** An entry of a list of events: its time as shown, the status whose colour it has, and its parts. */
export const eventItem = (props: {
  readonly id: string
  readonly at: string | undefined
  readonly time: string
  readonly colour: string
  readonly words: string
  readonly before: ComponentChildren
  readonly after: ComponentChildren
}): View => {
  const { after, at, before, colour, id, time, words } = props
  const whole = at === undefined ? "" : dateTime(at)
  return (
    <li key={id} class="across event">
      <time dateTime={at} title={whole} class={classes(time === whole && "is-date")}>
        {time}
      </time>
      <span class={classes("dot", `is-${colour}`)} aria-hidden="true" />
      {before}
      {words !== "" && (
        <span class="event-words" title={words}>
          {words}
        </span>
      )}
      <span class="grow" />
      {after}
    </li>
  )
}

const Item = ({ event, name }: FeedEvent): View => {
  const { server_id, time: at } = event.Data
  const [words, colour] = wordsOf(event)
  return eventItem({
    id: `${event.Cursor}-${event.Topic}`,
    at,
    time: at === undefined ? "" : clock(at),
    colour,
    words,
    before: serverLink(server_id, name === "" ? server_id : name),
    after: name !== "" && <code class="server-id">{server_id}</code>
  })
}

export const eventList = (events: ReadonlyArray<FeedEvent>): View => (
  <ol class="events card" aria-label="Events, newest first">
    {events.map(Item)}
  </ol>
)

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

const Crash = (crash: CrashRecord, isOpen: boolean, isNamed: boolean): View => (
  <details key={crash.id} class="crash" open={isOpen}>
    <summary>
      <span class="dot is-unknown" aria-hidden="true" />
      <time dateTime={crash.crashed_at}>{dateTime(crash.crashed_at)}</time>
      {isNamed && <strong>{nameOf(crash.server_id)}</strong>}
      <span class="crash-reason">{crash.reason}</span>
      {crash.signal !== undefined && <span class="label">{crash.signal}</span>}
      {crash.out_of_memory && <span class="label">out of memory</span>}
      {crash.uptime_seconds !== null && (
        <span class="muted">{`after ${duration(crash.uptime_seconds * 1000)}`}</span>
      )}
      {isNamed && <span class="muted">{crash.blueprint_id}</span>}
    </summary>
    {crash.lines.length === 0 ? (
      <p class="muted">It wrote no lines.</p>
    ) : (
      <pre class="lines" tabIndex={0} aria-label="The last lines before the crash">
        {crash.lines.join("\n")}
      </pre>
    )}
    {isNamed && (
      <p class="crash-server">
        <a href={addressOf.server(crash.server_id, "crashes")} onClick={follow}>
          Show the server
        </a>
      </p>
    )}
  </details>
)

/** Lists crashes, newest first, each with its last lines. Without an id it lists the crashes of all servers, deleted ones too. */
export const Crashes = ({
  again,
  id,
  last
}: {
  readonly id?: string
  readonly again: unknown
  /** The last crash of the server, whose record may be gone. */
  readonly last?: Pick<CrashRecord, "crashed_at" | "reason"> | undefined
}): View => {
  const path = id === undefined ? "/api/crashes?limit=100" : `/api/servers/${segment(id)}/crashes`
  const reply = useGet<ReadonlyArray<CrashRecord>>(path, again)
  if (reply?.ok !== true) {
    const gone = reply?.code === 404 && <p class="muted">No crash is recorded.</p>
    return <div class="stack card panel">{gone || drawReply(reply, "Loading the crashes", () => null)}</div>
  }
  if (reply.body.length === 0 && last !== undefined) {
    const text = `The server crashed ${dateTime(last.crashed_at)}: ${last.reason}. The record with its lines was removed.`
    return empty("events", "The record is gone", text)
  }
  return reply.body.length === 0 ? (
    empty("check", "No crash", "Servers that end by themselves appear here with their last lines.")
  ) : (
    <div class="stack card panel crashes">
      {reply.body.map((crash, index) => Crash(crash, index === 0 && id !== undefined, id === undefined))}
    </div>
  )
}
