import type { ServerId } from "../../contract/domain/Id.ts"
import type { RestrictedServer, Right } from "../../contract/domain/Key.ts"
import type { OperationChange } from "../../contract/domain/Operation.ts"
import type { Topic } from "../../contract/domain/ServerEvent.ts"
import type { EncodedEvent } from "./EncodedEvent.ts"

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
