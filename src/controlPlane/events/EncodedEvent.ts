import { Data } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import type { RestrictedServer, Right } from "../../contract/domain/Key.ts"
import type { Labels } from "../../contract/domain/Labels.ts"
import type { OperationChange } from "../../contract/domain/Operation.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { isOptIn, type Topic } from "../../contract/domain/ServerEvent.ts"

/** The fields that `include` adds to `Data` (spec 5.6). */
export const includable = ["server", "time"] as const
export type EventInclude = ReadonlySet<(typeof includable)[number]>

interface Content {
  /** Cursor of its entry. A live event has the cursor of the newest entry before it. */
  readonly cursor: number
  /** Milliseconds since the epoch. */
  readonly at: number
  /** Whether the event is not in the journal: it has neither `id:` nor `Cursor`. */
  readonly isLive: boolean
  /** Only subscribers with this interval, in seconds, receive the event. */
  readonly interval?: number
  readonly topic: Topic
  readonly server_id: ServerId
  readonly blueprint_id: string
  /** Labels of the server at the time of the event. */
  readonly labels?: Labels | undefined
  readonly payload: unknown
  /** The change of an event `operation`, by which streams filter; unset for other topics. */
  readonly of?: OperationChange
  /** The right that a caller needs to see the event; unset for topics of all callers. */
  readonly right?: Right
  /** The server for `include=server`; null if unknown or unneeded. */
  readonly server: Server | null
}

const encoder = new TextEncoder()

/**
 * One public event (spec 5.1), encoded once for all subscribers, each form on its first use. Keys are in the order of the
 * contract, `include` and `Cursor` last.
 */
export class EncodedEvent extends Data.Class<Content> {
  readonly isOptIn: boolean
  readonly text: string
  readonly sse: Uint8Array
  readonly #include: EventInclude
  readonly #variants: Array<EncodedEvent> = []
  #sseWithId: Uint8Array | undefined
  #textWithCursor: string | undefined

  constructor(content: Content, include: EventInclude = new Set()) {
    super(content)
    this.isOptIn = isOptIn(this.topic)
    this.#include = include
    this.text = JSON.stringify(this.#message())
    this.sse = encoder.encode(`event: ${this.topic}\ndata: ${this.text}\n\n`)
  }

  #message() {
    const { at, payload, server, server_id, topic } = this
    const Data = {
      server_id,
      payload,
      ...(this.#include.has("server") && { server }),
      ...(this.#include.has("time") && { time: new Date(at).toISOString() })
    }
    return { Topic: topic, Data }
  }

  /** Returns the event with further fields in `Data`. Each variant is encoded once, too. */
  including(include: EventInclude): EncodedEvent {
    const variant = (include.has("server") ? 1 : 0) + (include.has("time") ? 2 : 0)
    if (variant === 0) return this
    const made = this.#variants[variant] ?? new EncodedEvent(this, include)
    this.#variants[variant] = made
    return made
  }

  get sseWithId(): Uint8Array {
    if (this.isLive) return this.sse
    this.#sseWithId ??= Buffer.concat([encoder.encode(`id: ${this.cursor}\n`), this.sse])
    return this.#sseWithId
  }

  get textWithCursor(): string {
    if (this.isLive) return this.text
    this.#textWithCursor ??= JSON.stringify({ ...this.#message(), Cursor: this.cursor })
    return this.#textWithCursor
  }
}

/** The events that a subscriber receives. An absent field filters nothing (spec 5). */
export interface EventFilter {
  readonly topics?: ReadonlySet<Topic>
  readonly serverIds?: ReadonlySet<ServerId>
  readonly blueprintIds?: ReadonlySet<string>
  /** Seconds between two `stats` events of a server. */
  readonly interval?: number
  /** Whether the caller may read a server with these facts. If absent, the caller reads every server. */
  readonly mayRead?: (server: RestrictedServer) => boolean
  /** Whether the caller may see an operation. If absent, the caller sees all of the servers that it reads. */
  readonly maySee?: (change: OperationChange) => boolean
  /** The rights of the caller. If absent, the caller has all. */
  readonly rights?: ReadonlySet<Right>
}

/** Seconds between two `stats` events of a server, without `interval`. */
const DEFAULT_INTERVAL = 10

export const intervalOf = ({ interval = DEFAULT_INTERVAL }: EventFilter): number => interval

/** Whether an event is not before the position of a subscriber, up to which it has every entry. */
export const isNews = (event: EncodedEvent, position: number): boolean =>
  event.cursor > position || (event.isLive && event.cursor === position)

export const letsThrough = (
  { blueprintIds, mayRead, serverIds }: EventFilter,
  { blueprint_id, labels, server_id }: Pick<EncodedEvent, "blueprint_id" | "labels" | "server_id">
): boolean =>
  (serverIds === undefined || serverIds.has(server_id)) &&
  (blueprintIds === undefined || blueprintIds.has(blueprint_id)) &&
  (mayRead === undefined ||
    mayRead({ id: server_id, blueprint_id, ...(labels === undefined ? {} : { labels }) }))

export const passes = (filter: EventFilter, event: EncodedEvent): boolean =>
  (filter.topics === undefined ? !event.isOptIn : filter.topics.has(event.topic)) &&
  (event.of === undefined || filter.maySee === undefined || filter.maySee(event.of)) &&
  (event.right === undefined || filter.rights === undefined || filter.rights.has(event.right)) &&
  (event.interval === undefined || event.interval === intervalOf(filter)) &&
  letsThrough(filter, event)
