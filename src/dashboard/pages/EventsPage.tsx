import { signal } from "@preact/signals"
import { isAdmin } from "../api/session.ts"
import type { Topic } from "../api/types.ts"
import type { View } from "../dom/el.ts"
import { dateTime } from "../dom/format.ts"
import { AuditList, Crashes, eventList } from "../parts/eventList.tsx"
import { chips, empty, pageHead, tabList } from "../parts/parts.tsx"
import { feed, MOST_EVENTS } from "../state/live.ts"
import { addressOf } from "../state/router.ts"

/** The topic that the page shows; empty: all. */
const shown = signal<Topic | "">("")

const topics: ReadonlyArray<readonly [Topic, string]> = [
  ["status", "Status"],
  ["install", "Installation"],
  ["crash", "Crashes"],
  ["deleted", "Deletions"],
  ["problem", "Refused starts"],
  ["expiring", "Expiry"]
]

/** The events of all servers that this tab has seen. */
const Feed = (): View => {
  const all = feed.value
  const listed = shown.value === "" ? all : all.filter(({ event }) => event.Topic === shown.value)
  const tally = (topic: Topic) => all.reduce((sum, { event }) => sum + (event.Topic === topic ? 1 : 0), 0)
  return (
    <div>
      {chips<Topic | "">({
        name: "Filter by topic",
        chosen: shown.value,
        choices: [
          ["", "All", all.length],
          ...topics.map(([topic, text]) => [topic, text, tally(topic)] as const)
        ],
        onChoose: (topic) => {
          shown.value = topic
        }
      })}
      {listed.length === 0
        ? empty("events", "No event yet", "Each change of a server appears here the moment it is stored.")
        : eventList(listed)}
    </div>
  )
}

const parts = { "": "Live", crashes: "Crashes", audit: "Audit log" } as const

const meanings = {
  crashes: "The newest 100, of deleted servers too",
  audit: "The newest 200 requests that change something, refused ones too"
} as const

const liveMeaning = (): string => {
  const first = feed.value.at(-1)?.event.Data.time
  return `At most ${MOST_EVENTS}, as they happen${first === undefined ? "" : `; the oldest is of ${dateTime(first)}`}`
}

const isPart = (text: string): text is keyof typeof parts => Object.hasOwn(parts, text)

export const EventsPage = ({ tab }: { readonly tab: string }): View => {
  const part = isPart(tab) ? tab : ""
  const crashed = feed.value.reduce((sum, { event }) => sum + (event.Topic === "crash" ? 1 : 0), 0)
  return (
    <div>
      {pageHead("Events", part === "" ? liveMeaning() : meanings[part])}
      {tabList(
        "Kinds of events",
        Object.entries(parts).flatMap(([name, text]) =>
          name === "audit" && !isAdmin()
            ? []
            : [{ text, address: addressOf.events(name), isShown: name === part }]
        )
      )}
      {part === "" ? <Feed /> : part === "crashes" ? <Crashes again={crashed} /> : <AuditList object="" />}
    </div>
  )
}
