/** The stream of changes: it resumes at its cursor, and the list is read again where the service has forgotten it. */

import { signal } from "@preact/signals"
import { key } from "../api/http.ts"
import { type Ending, type OpenStream, openStream, pauseBefore } from "../api/stream.ts"
import type { ServerEvent } from "../api/types.ts"
import type { Row } from "./rows.ts"
import { changed, drop, load, membership, put, readLater, rows } from "./servers.ts"

/** Changes before the list that the feed reads at first. About half of them are no events of the feed. */
const HISTORY = 1200

/** Longest wait of changes while the page is hidden, in milliseconds. */
const HIDDEN = 1000

const TOPICS = "topics=status,crash,deleted,install,expiring,problem,operation,backup&include=server,time"

export const MOST_EVENTS = 500

export interface FeedEvent {
  readonly event: ServerEvent
  readonly name: string
}

/** The newest events, newest first. */
export const feed = signal<ReadonlyArray<FeedEvent>>([])

const addToFeed = (events: ReadonlyArray<FeedEvent>): void => {
  if (events.length === 0) return
  feed.value = [...events.toReversed(), ...feed.value].slice(0, MOST_EVENTS)
}

export const clearFeed = (): void => {
  feed.value = []
}

export interface Connection {
  readonly state: "loading" | "live" | "reconnecting" | "ended"
  readonly detail: string
}

export const connection = signal<Connection>({ state: "loading", detail: "Reading the list of servers" })

let stream: OpenStream | undefined
let cursor = 0
/** Events up to here are history: the list has them. */
let listed = 0
let hasOpened = false
let attempt = 0
let retry: ReturnType<typeof setTimeout> | undefined
let waiting: Array<ServerEvent> = []
let scheduled: (() => void) | undefined

/** Called with each event that changes a server, after the row has changed. */
const listeners = new Set<(event: ServerEvent) => void>()
export const onEvent = (listener: (event: ServerEvent) => void): (() => void) => {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

const rowAfter = (row: Row, event: ServerEvent): Row => {
  const { server, time } = event.Data
  // The server of an event has its place, but none of its further fields.
  const { restart, ...placed } = { ...row, ...server }
  const again = restart === undefined ? {} : { restart }
  switch (event.Topic) {
    case "status": {
      const status = event.Data.payload
      return { ...placed, status, ...(status === "running" && { last_crash: null }) }
    }
    case "crash": {
      const { reason } = event.Data.payload
      return { ...placed, ...again, last_crash: { crashed_at: time ?? "", reason, restart: null } }
    }
    case "install": {
      const { phase, reason } = event.Data.payload
      return {
        ...placed,
        ...again,
        install: { phase, ...(reason !== undefined && { failure_reason: reason }) }
      }
    }
    case "problem":
      return { ...placed, ...again, problem: event.Data.payload }
    default:
      return { ...placed, ...again }
  }
}

const apply = (event: ServerEvent): void => {
  const { server_id } = event.Data
  const row = rows.get(server_id)
  if (event.Topic === "deleted") drop(server_id)
  else if (row !== undefined) put(rowAfter(row, event))
  else if (event.Topic === "status") readLater(server_id)
}

/**
 * Whether the feed shows an event. Progress is left out, and so are backups and the first start: the feed has their
 * operations and statuses.
 */
const isForPeople = (event: ServerEvent): boolean =>
  event.Topic !== "backup" &&
  ((event.Topic !== "install" && event.Topic !== "operation") ||
    (event.Cursor !== undefined && (event.Topic === "operation" || event.Data.payload.step !== "start")))

/** Applies the changes that wait, once a frame. */
const flush = (): void => {
  scheduled = undefined
  const batch = waiting
  waiting = []
  const fed: Array<FeedEvent> = []
  for (const event of batch) {
    const isHistory = event.Cursor !== undefined && event.Cursor <= listed
    if (event.Cursor !== undefined) cursor = Math.max(cursor, event.Cursor)
    const name = rows.get(event.Data.server_id)?.name ?? ""
    if (!isHistory) apply(event)
    if (isForPeople(event)) fed.push({ event, name })
    if (!isHistory) for (const listener of listeners) listener(event)
  }
  addToFeed(fed)
  changed()
}

const schedule = (): void => {
  if (scheduled !== undefined) return
  if (document.hidden) {
    const timer = setTimeout(flush, HIDDEN)
    scheduled = () => clearTimeout(timer)
  } else {
    const frame = requestAnimationFrame(flush)
    scheduled = () => cancelAnimationFrame(frame)
  }
}

// Frames stop while the page is hidden.
document.addEventListener("visibilitychange", () => {
  if (scheduled === undefined) return
  scheduled()
  flush()
})

const later = (next: () => void): void => {
  connection.value = { state: "reconnecting", detail: `Trying again, attempt ${attempt + 1}` }
  clearTimeout(retry)
  retry = setTimeout(() => {
    retry = undefined
    next()
  }, pauseBefore(attempt++))
}

const ended = (detail: string): void => {
  connection.value = { state: "ended", detail }
}

const listAgain = async (reason: string): Promise<void> => {
  connection.value = { state: attempt === 0 ? "loading" : "reconnecting", detail: reason }
  const loaded = await load()
  if (key.value === undefined) return
  if (!loaded.ok) {
    if (loaded.isFinal) ended(loaded.detail)
    else later(() => void listAgain(reason))
    return
  }
  listed = loaded.cursor
  cursor = hasOpened ? listed : Math.max(0, listed - HISTORY)
  open(reason)
}

const open = (reason: string): void => {
  stream?.close()
  const from = cursor
  const query = `${TOPICS}&cursor=${from}`
  stream = openStream(`/api/events/ws?${query}`, `/api/events?${query}`, {
    onOpen: () => {
      attempt = 0
      hasOpened = true
      connection.value = { state: "live", detail: reason }
    },
    onMessage: (text) => {
      // The service that has sent this page sends events in the form of its contract.
      waiting.push(JSON.parse(text) as ServerEvent)
      schedule()
    },
    onEnd: (ending) => onEnd(ending, from)
  })
}

const onEnd = (ending: Ending, from: number): void => {
  if (ending.kind === "refused") ended(ending.detail)
  else if (ending.kind === "broken") later(resume)
  else if (from < listed) {
    // The service retains less than the history of the feed: 0 begins with its oldest change.
    cursor = from === 0 ? listed : 0
    open("Live")
  } else void listAgain("Changes were missed; the list was read again")
}

/** Resumes after the last change, never before the list: a service with a restored database may have other changes there. */
const resume = (): void => {
  if (!hasOpened) return void listAgain("Live")
  cursor = Math.max(cursor, listed)
  open(`Resumed after change ${cursor}`)
}

export const connect = (): void => {
  attempt = 0
  hasOpened = false
  void listAgain("Live")
}

/** Tries at once, for example because the network is back. */
export const reconnect = (): void => {
  // An attempt that is under way continues.
  if (retry === undefined) return
  clearTimeout(retry)
  retry = undefined
  resume()
}

/** Ends a connection on which requests get no response: browsers do not show that a WebSocket is dead. */
export const suspectDead = (): void => {
  if (connection.value.state !== "live") return
  stream?.close()
  later(resume)
}

export const disconnect = (): void => {
  clearTimeout(retry)
  stream?.close()
  rows.clear()
  membership.value++
  connection.value = { state: "loading", detail: "" }
}

window.addEventListener("online", reconnect)
