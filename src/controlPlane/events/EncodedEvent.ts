import type { ServerId } from "../../contract/domain/Id.ts"
import type { RestrictedServer } from "../../contract/domain/Key.ts"
import type { Labels } from "../../contract/domain/Labels.ts"
import type { Topic } from "../../contract/domain/ServerEvent.ts"

/** The events that a subscriber receives. An absent field filters nothing (spec 5). */
export interface EventFilter {
  readonly topics?: ReadonlySet<Topic>
  readonly serverIds?: ReadonlySet<ServerId>
  readonly blueprintIds?: ReadonlySet<string>
  /** Seconds between two `stats` events of a server. */
  readonly interval?: number
  /** Whether the caller may read a server with these facts. If absent, the caller reads every server. */
  readonly mayRead?: (server: RestrictedServer) => boolean
}

/** Seconds between two `stats` events of a server, without `interval`. */
const DEFAULT_INTERVAL = 10

export const intervalOf = ({ interval = DEFAULT_INTERVAL }: EventFilter): number => interval

/** The fields that `include` adds to `Data` (spec 5.5). */
export const includable = ["server", "time"] as const
export type EventInclude = ReadonlySet<(typeof includable)[number]>

/** One public event, encoded once for all subscribers. */
export interface EncodedEvent {
  /** Cursor of its entry. A live event has the cursor of the newest entry before it. */
  readonly cursor: number
  /** Whether the event is not in the journal: it has neither `id:` nor `Cursor`. */
  readonly isLive: boolean
  /** Only subscribers with this interval, in seconds, receive the event. */
  readonly interval: number | undefined
  readonly topic: Topic
  readonly isOptIn: boolean
  readonly server_id: ServerId
  readonly blueprint_id: string
  /** Labels of the server at the time of the event. */
  readonly labels: Labels | undefined
  readonly sse: Uint8Array
  readonly sseWithId: Uint8Array
  readonly text: string
  readonly textWithCursor: string
  /** Returns the event with further fields in `Data`. Each variant is encoded once, too. */
  including(include: EventInclude): EncodedEvent
}

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
  (event.interval === undefined || event.interval === intervalOf(filter)) &&
  letsThrough(filter, event)
