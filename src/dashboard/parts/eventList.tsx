/** A list of events. */

import type { ServerEvent } from "../api/types.ts"
import { classes, type View } from "../dom/el.ts"
import { clock, dateTime } from "../dom/format.ts"
import { withActions } from "../dom/routeActions.ts"
import type { FeedEvent } from "../state/feed.ts"
import { addressOf, follow } from "../state/router.ts"
import { problemText } from "../state/rows.ts"

/** The words for an event, and the colour that goes with it. */
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
    case "stats":
      return ["measured", "offline"]
  }
}

const Item = ({ event, name }: FeedEvent): View => {
  const { server_id, time: at } = event.Data
  const [words, colour] = wordsOf(event)
  return (
    <li class="across event">
      <time dateTime={at} title={at === undefined ? "" : dateTime(at)}>
        {at === undefined ? "" : clock(at)}
      </time>
      <span class={classes("dot", `is-${colour}`)} aria-hidden="true" />
      <a href={addressOf.server(server_id)} class="server-link" onClick={follow}>
        {name === "" ? server_id : name}
      </a>
      <span class="event-words" title={words}>
        {words}
      </span>
      <span class="grow" />
      {name !== "" && <code class="server-id">{server_id}</code>}
    </li>
  )
}

/** A list of events, newest first. */
export const eventList = (events: ReadonlyArray<FeedEvent>): View => (
  <ol class="events card" aria-label="Events, newest first">
    {events.map((item) => (
      <Item key={`${item.event.Cursor}-${item.event.Topic}`} {...item} />
    ))}
  </ol>
)
