/** The newest events, for people. */
import { signal } from "@preact/signals"
import type { ServerEvent } from "../api/types.ts"

export const MOST_EVENTS = 500

export interface FeedEvent {
  readonly event: ServerEvent
  readonly name: string
}

/** Newest first. */
export const feed = signal<ReadonlyArray<FeedEvent>>([])

export const addToFeed = (events: ReadonlyArray<FeedEvent>): void => {
  if (events.length === 0) return
  feed.value = [...events.toReversed(), ...feed.value].slice(0, MOST_EVENTS)
}

export const clearFeed = (): void => {
  feed.value = []
}
