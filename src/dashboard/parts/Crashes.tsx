import { segment, useGet } from "../api/http.ts"
import type { CrashRecord } from "../api/types.ts"
import type { View } from "../dom/el.ts"
import { dateTime, duration } from "../dom/format.ts"
import { addressOf, follow } from "../state/router.ts"
import { nameOf } from "../state/servers.ts"
import { drawReply, empty } from "./parts.tsx"

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
