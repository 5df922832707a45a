import type { ServerId } from "../../contract/domain/Id.ts"
import { currentStep, type InstallState } from "../../contract/domain/InstallState.ts"
import type { JournalEntry } from "../../contract/domain/Journal.ts"
import type { Labels } from "../../contract/domain/Labels.ts"
import { cleanText } from "../../contract/domain/NodeText.ts"
import type { Server } from "../../contract/domain/Server.ts"
import {
  type Expiring,
  type InstallProgress,
  isOptIn,
  type Topic
} from "../../contract/domain/ServerEvent.ts"
import type { EncodedEvent, EventInclude } from "./EncodedEvent.ts"
import type { LiveNews } from "./LiveFeed.ts"

const textEncoder = new TextEncoder()

/** Runs `make` on the first call only, because most events are never sent in most of their forms. */
const once = <A>(make: () => A): (() => A) => {
  let made: { readonly value: A } | undefined
  return () => {
    made ??= { value: make() }
    return made.value
  }
}

interface Content {
  readonly entry: Pick<JournalEntry, "cursor" | "at" | "blueprint_id" | "labels">
  readonly isLive: boolean
  readonly interval?: number
  readonly topic: Topic
  readonly server_id: ServerId
  readonly payload: unknown
  readonly server: Server | null
}

/** The fields that `include` adds, in their order. */
interface Extra {
  readonly server?: Server | null
  readonly time?: string
}

/**
 * The forms of one event (spec 5.1), each made on its first use and shared. Keys are in the order of the contract,
 * `include` and `Cursor` last.
 */
class Encoded implements EncodedEvent {
  readonly cursor: number
  readonly isLive: boolean
  readonly interval: number | undefined
  readonly topic: Topic
  readonly isOptIn: boolean
  readonly server_id: ServerId
  readonly blueprint_id: string
  readonly labels: Labels | undefined
  readonly text: string
  readonly sse: Uint8Array
  private readonly withId: () => Uint8Array
  private readonly withCursor: () => string
  private readonly content: Content
  private readonly variants: Array<EncodedEvent> = []

  constructor(content: Content, extra?: Extra) {
    const { isLive, payload, server_id, topic } = content
    const { cursor, blueprint_id, labels } = content.entry
    const Data = extra === undefined ? { server_id, payload } : { server_id, payload, ...extra }
    const message = { Topic: topic, Data }
    this.content = content
    this.cursor = cursor
    this.isLive = isLive
    this.interval = content.interval
    this.topic = topic
    this.isOptIn = isOptIn(topic)
    this.server_id = server_id
    this.blueprint_id = blueprint_id
    this.labels = labels
    this.text = JSON.stringify(message)
    const lines = `event: ${topic}\ndata: ${this.text}\n\n`
    this.sse = textEncoder.encode(lines)
    this.withId = once(() => (isLive ? this.sse : textEncoder.encode(`id: ${cursor}\n${lines}`)))
    this.withCursor = once(() => (isLive ? this.text : JSON.stringify({ ...message, Cursor: cursor })))
  }

  including(include: EventInclude): EncodedEvent {
    const variant = (include.has("server") ? 1 : 0) + (include.has("time") ? 2 : 0)
    if (variant === 0) return this
    const known = this.variants[variant]
    if (known !== undefined) return known
    const { entry, server } = this.content
    const made = new Encoded(this.content, {
      ...(include.has("server") && { server }),
      ...(include.has("time") && { time: new Date(entry.at).toISOString() })
    })
    this.variants[variant] = made
    return made
  }

  get sseWithId() {
    return this.withId()
  }
  get textWithCursor() {
    return this.withCursor()
  }
}

/** Bound of an event without `server`, in bytes: each text of a node in an event is at most 1,024 characters. */
export const MAX_EVENT_BYTES = 64 * 1024

/** Returns the payload of a durable `install` event: the present or failed step, or a finished start. */
const installProgress = ({ failure_reason, phase, steps = [] }: InstallState): InstallProgress => {
  const last = steps.at(-1)
  const step = currentStep(steps) ?? (phase === "failed" || last?.name === "start" ? last : undefined)
  return {
    phase,
    ...(step === undefined ? {} : { step: step.name }),
    ...(step?.name === "start" && step.finished_at !== undefined ? { progress: 1 } : {}),
    ...(failure_reason === undefined ? {} : { reason: cleanText(failure_reason) })
  }
}

/** Returns the event of live news, with the cursor of the newest entry before it. */
export const encodeLive = (news: LiveNews, cursor: number, server: Server | null): EncodedEvent => {
  const { at, blueprint_id, labels, payload, server_id, topic } = news
  return new Encoded({
    entry: { cursor, at, blueprint_id, labels },
    isLive: true,
    ...("interval" in news && { interval: news.interval }),
    topic,
    server_id,
    payload,
    server
  })
}

/**
 * Returns the public event of an entry, unless the change is internal. Texts of nodes are bounded here.
 * @param server the server for `include=server`; null if unknown or unneeded
 */
export const encode = (entry: JournalEntry, server: Server | null = null): EncodedEvent | undefined => {
  const { change } = entry
  const encoded = (topic: Topic, server_id: ServerId, payload: unknown) =>
    new Encoded({ entry, isLive: false, topic, server_id, payload, server })
  switch (change.topic) {
    case "status":
      return encoded("status", change.server_id, change.payload)
    case "crash": {
      const { reason, exit_code, timestamp } = change.payload
      return encoded("crash", change.server_id, {
        reason: cleanText(reason),
        exit_code,
        timestamp: cleanText(timestamp)
      })
    }
    case "deleted":
      return encoded("deleted", change.server_id, null)
    case "server:install":
      return encoded("install", change.server_id, installProgress(change.payload))
    case "server:expiring": {
      const expiring: Expiring = { expires_at: change.payload }
      return encoded("expiring", change.server_id, expiring)
    }
    case "server:problem":
      return encoded("problem", change.server_id, change.payload)
    default:
      return undefined
  }
}
