import type { Array as Arr } from "effect"
import type { ServerId } from "../domain/Id.ts"
import { type EncodedEvent, type EventFilter, type EventInclude, isNews, passes } from "./EncodedEvent.ts"
import type { Outbox } from "./Outbox.ts"

export interface Subscriber {
  readonly filter: EventFilter
  readonly include: EventInclude
  readonly outbox: Outbox<EncodedEvent>
  readonly withCursor: boolean
  /** {@link selectionOf} */
  readonly selection: string | undefined
  /** The position after which its events begin; undefined while the subscriber reads the journal. */
  from: number | undefined
}

/** Returns an equal text for subscribers that receive the same events; undefined: that depends on the server. */
export const selectionOf = (
  { blueprintIds, interval, mayRead, serverIds, topics }: EventFilter,
  include: EventInclude,
  withCursor: boolean
): string | undefined =>
  blueprintIds === undefined && mayRead === undefined && serverIds === undefined
    ? JSON.stringify([topics && [...topics].toSorted(), interval, [...include].toSorted(), withCursor])
    : undefined

/** Events for a subscriber, and their size. */
interface Selected {
  readonly events: ReadonlyArray<EncodedEvent>
  readonly bytes: number
}

const select = (
  { filter, include, withCursor }: Subscriber,
  events: ReadonlyArray<EncodedEvent>
): Selected => {
  const passed = events.filter((event) => passes(filter, event)).map((event) => event.including(include))
  const sizes = passed.map((event) => (withCursor ? event.sseWithId : event.sse).length)
  return { events: passed, bytes: sizes.reduce((sum, size) => sum + size, 0) }
}

/** Returns how to find the events of some servers, in their order, without a look at all events. */
const makeEventsOf = (events: ReadonlyArray<EncodedEvent>) => {
  let byServer: Map<ServerId, Array<[number, EncodedEvent]>> | undefined
  return (ids: ReadonlySet<ServerId>): ReadonlyArray<EncodedEvent> => {
    if (ids.size >= events.length) return events
    byServer ??= Map.groupBy(events.entries(), ([, { server_id }]) => server_id)
    const found = [...ids].flatMap((id) => byServer?.get(id) ?? [])
    return found.toSorted(([one], [other]) => one - other).map(([, event]) => event)
  }
}

/**
 * Moves events into the outboxes of subscribers, which never wait for a peer. Subscribers with the same selection share
 * one array. Returns how many subscribers are cut off.
 */
export const fanOut = (
  subscribers: Iterable<Subscriber>,
  events: Arr.NonEmptyReadonlyArray<EncodedEvent>
): number => {
  const shared = new Map<string, Selected>()
  const eventsOf = makeEventsOf(events)
  let cutOff = 0
  for (const subscriber of subscribers) {
    const { filter, from, outbox, selection } = subscriber
    if (from === undefined || !outbox.isOpen) continue
    const isShared = selection !== undefined && isNews(events[0], from)
    const candidates = filter.serverIds === undefined ? events : eventsOf(filter.serverIds)
    const selected =
      (isShared ? shared.get(selection) : undefined) ??
      select(subscriber, isShared ? candidates : candidates.filter((event) => isNews(event, from)))
    if (isShared) shared.set(selection, selected)
    outbox.offerAllUnsafe(selected.events, selected.bytes)
    if (!outbox.isOpen) cutOff += 1
  }
  return cutOff
}
