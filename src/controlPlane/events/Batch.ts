import type { Array as Arr } from "effect"
import { type EncodedEvent, type EventFilter, type EventInclude, isNews, passes } from "./EncodedEvent.ts"

/** The events and the fields that a subscriber asks for. */
export interface Selection {
  readonly filter: EventFilter
  readonly include: EventInclude
  /** Names the text that subscribers with the same events share. Unset if the events depend on the server. */
  readonly shared: string | undefined
}

export const selectionOf = (filter: EventFilter, include: EventInclude): Selection => {
  const { blueprintIds, interval, mayRead, maySee, rights, serverIds, topics } = filter
  const isShared = [blueprintIds, mayRead, maySee, rights, serverIds].every(
    (condition) => condition === undefined
  )
  const names = [topics && [...topics].toSorted(), interval, [...include].toSorted()]
  return { filter, include, shared: isShared ? JSON.stringify(names) : undefined }
}

export const select = (
  { filter, include }: Selection,
  events: ReadonlyArray<EncodedEvent>
): ReadonlyArray<EncodedEvent> =>
  events.filter((event) => passes(filter, event)).map((event) => event.including(include))

/** The events that one turn publishes. Subscribers with the same selection share one array of them. */
export class Batch {
  /** The number of the batch: one that a subscriber misses leaves a gap. */
  readonly number: number
  readonly events: Arr.NonEmptyReadonlyArray<EncodedEvent>
  private readonly shared = new Map<string, ReadonlyArray<EncodedEvent>>()

  constructor(number: number, events: Arr.NonEmptyReadonlyArray<EncodedEvent>) {
    this.number = number
    this.events = events
  }

  select(selection: Selection, after: number): ReadonlyArray<EncodedEvent> {
    if (!isNews(this.events[0], after)) {
      return select(
        selection,
        this.events.filter((event) => isNews(event, after))
      )
    }
    if (selection.shared === undefined) return select(selection, this.events)
    const known = this.shared.get(selection.shared)
    if (known !== undefined) return known
    const made = select(selection, this.events)
    this.shared.set(selection.shared, made)
    return made
  }
}

/** Returns a function that encodes events once for all subscribers that share them. */
export const sharedBytes = (parts: (events: ReadonlyArray<EncodedEvent>) => ReadonlyArray<Uint8Array>) => {
  const made = new WeakMap<ReadonlyArray<EncodedEvent>, Uint8Array>()
  return (events: ReadonlyArray<EncodedEvent>): Uint8Array => {
    const known = made.get(events)
    if (known !== undefined) return known
    const bytes = Buffer.concat(parts(events))
    made.set(events, bytes)
    return bytes
  }
}
