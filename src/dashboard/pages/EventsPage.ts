import { signal } from "@preact/signals"
import { h } from "preact"
import { isAdmin } from "../api/session.ts"
import type { ServerEvent, Topic } from "../api/types.ts"
import { a, button, classes, code, div, h1, li, ol, span, time, type View } from "../dom/el.ts"
import { clock, count, dateTime } from "../dom/format.ts"
import { empty, tabList } from "../parts/parts.ts"
import { type FeedEvent, feed } from "../state/feed.ts"
import { addressOf, follow } from "../state/router.ts"
import { AuditList } from "./AuditList.ts"
import { Crashes } from "./server/Crashes.ts"

/** The topic that the page shows; empty: all. */
const shown = signal<Topic | "">("")

const topics: ReadonlyArray<readonly [Topic, string]> = [
  ["status", "Status"],
  ["install", "Installation"],
  ["crash", "Crashes"],
  ["deleted", "Deletions"],
  ["expiring", "Expiry"]
]

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
      if (phase === "failed") return [`installation failed: ${reason ?? "no reason"}`, "unknown"]
      if (phase === "ready") return [step === undefined ? "installed" : `installed, step ${step}`, "running"]
      if (phase === "pending") return ["waits for its installation", "installing"]
      return [step === undefined ? "installation started" : `installing, step ${step}`, "installing"]
    }
    case "expiring":
      return [`expires at ${clock(event.Data.payload.expires_at)}`, "stopping"]
    case "stats":
      return ["measured", "offline"]
  }
}

const Item = ({ event, name }: FeedEvent): View => {
  const { server_id, time: at } = event.Data
  const [words, colour] = wordsOf(event)
  return li(
    { class: "event" },
    time({ dateTime: at, title: at === undefined ? "" : dateTime(at) }, at === undefined ? "" : clock(at)),
    span({ class: classes("dot", `is-${colour}`), "aria-hidden": "true" }),
    a(
      { href: addressOf.server(server_id), class: "server-link", onClick: follow },
      name === "" ? server_id : name
    ),
    span({ class: "event-words", title: words }, words),
    span({ class: "grow" }),
    name !== "" && code({ class: "server-id" }, server_id)
  )
}

/** A list of events, newest first. */
export const eventList = (events: ReadonlyArray<FeedEvent>): View =>
  ol(
    { class: "events card", "aria-label": "Events, newest first" },
    events.map((item) => h(Item, { key: `${item.event.Cursor}-${item.event.Topic}`, ...item }))
  )

/** The events of all servers that this tab has seen. */
const Feed = (): View => {
  const all = feed.value
  const listed = shown.value === "" ? all : all.filter(({ event }) => event.Topic === shown.value)
  const tally = (topic: Topic) => all.reduce((sum, { event }) => sum + (event.Topic === topic ? 1 : 0), 0)
  const chip = (topic: Topic | "", text: string, number: number) =>
    button(
      {
        type: "button",
        key: topic,
        class: classes("chip", shown.value === topic && "is-chosen"),
        "aria-pressed": shown.value === topic,
        onClick: () => {
          shown.value = topic
        }
      },
      text,
      span({ class: "chip-count" }, count(number))
    )
  return div(
    {},
    div(
      { class: "chips", role: "group", "aria-label": "Filter by topic" },
      chip("", "All", all.length),
      topics.map(([topic, text]) => chip(topic, text, tally(topic)))
    ),
    listed.length === 0
      ? empty("events", "No event yet", "Each change of a server appears here the moment it is stored.")
      : eventList(listed)
  )
}

const parts = { "": "Live", crashes: "Crashes", audit: "Audit log" } as const

const meanings = {
  "": "The newest 500, as they happen",
  crashes: "The newest 100, of deleted servers too",
  audit: "The newest 200 requests that change something, refused ones too"
} as const

const isPart = (text: string): text is keyof typeof parts => Object.hasOwn(parts, text)

/** The newest events, crashes and requests. */
export const EventsPage = ({ tab }: { readonly tab: string }): View => {
  const part = isPart(tab) ? tab : ""
  const crashed = feed.value.reduce((sum, { event }) => sum + (event.Topic === "crash" ? 1 : 0), 0)
  return div(
    {},
    div({ class: "page-head" }, h1({}, "Events"), span({ class: "muted" }, meanings[part])),
    tabList(
      "Kinds of events",
      Object.entries(parts).flatMap(([name, text]) =>
        name === "audit" && !isAdmin()
          ? []
          : [{ text, address: addressOf.events(name), isShown: name === part }]
      )
    ),
    part === ""
      ? h(Feed, {})
      : part === "crashes"
        ? h(Crashes, { again: crashed })
        : h(AuditList, { object: "" })
  )
}
