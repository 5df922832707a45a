import { Context, Effect, Layer, Scope, type Stream } from "effect"
import { CursorExpired, type Unavailable } from "../../contract/domain/errors.ts"
import { type JournalEntry, serverOf } from "../../contract/domain/Journal.ts"
import { Journal } from "../store/journal/Journal.ts"
import type { EventFilter, EventInclude } from "./EncodedEvent.ts"
import { encode } from "./encode.ts"
import { LiveFeed, ServerSummaries } from "./LiveFeed.ts"
import { makePublisher, select, selectionOf } from "./Publisher.ts"
import { type Delivery, joinOthers, replay, type SubscriberTooSlow } from "./subscription.ts"

export type StartCursor = number | "now"

export interface SubscribeOptions {
  readonly filter: EventFilter
  readonly include?: EventInclude
  readonly cursor?: StartCursor
}

export interface Subscription {
  /** Cursor after which the events begin. */
  readonly start: number
  /** To be run once. It ends when the service stops. */
  readonly events: Stream.Stream<Delivery, SubscriberTooSlow | Unavailable>
}

const nothing: EventInclude = new Set()

/** Batches that a subscriber may be behind: all slow subscribers together hold these. */
const BATCHES = 512

const make = Effect.fnUntraced(function* (batches: number, replayPage: number) {
  const journal = yield* Journal
  const summaries = yield* ServerSummaries
  const live = yield* LiveFeed
  const publisher = yield* makePublisher({ batches, find: summaries.find })
  live.receive(publisher.publishLive)
  yield* journal.follow("publish", (entries) => Effect.sync(() => publisher.publish(entries)))
  // After the registration, so that no entry is missing in between.
  publisher.startAt((yield* journal.bounds).newest)

  const replayStart = Effect.fnUntraced(function* (cursor: number) {
    const { oldest, newest } = yield* journal.bounds
    if (cursor === 0) return Math.max(0, oldest - 1)
    if (cursor < oldest - 1) {
      return yield* new CursorExpired({
        detail: `cursor ${cursor} is no longer retained; the oldest is ${oldest - 1}`
      })
    }
    if (cursor > newest) {
      return yield* new CursorExpired({
        detail: `cursor ${cursor} was never issued`
      })
    }
    return cursor
  })

  /**
   * Subscribes before the effect returns, until the scope closes. A numeric `cursor` first replays the events after
   * it; 0 requests all retained events.
   *
   * @error CursorExpired `cursor` is no longer retained, or the journal never issued it
   */
  // A span would stay in memory as long as the stream.
  const subscribe = Effect.fnUntraced(function* (wanted: SubscribeOptions) {
    const { cursor, filter, include = nothing } = wanted
    const from = typeof cursor === "number" ? yield* replayStart(cursor) : undefined
    const selection = selectionOf(filter, include)
    const scope = yield* Effect.scope
    // `acquireRelease` would hold the whole context of the request.
    yield* Scope.addFinalizer(scope, Effect.sync(publisher.count(wanted)))
    const goLive = Scope.provide(joinOthers(publisher, selection), scope)
    if (from === undefined) {
      const { eventsAfter, position } = yield* goLive
      return { start: position, events: eventsAfter(position) } satisfies Subscription
    }
    const serverOfEntry = ({ change }: JournalEntry) => {
      const id = include.has("server") ? serverOf(change) : undefined
      return id === undefined ? null : (summaries.find(id) ?? null)
    }
    const events = replay({
      journal,
      from,
      page: replayPage,
      selected: (entries) =>
        select(
          selection,
          entries.flatMap((entry) => encode(entry, serverOfEntry(entry)) ?? [])
        ),
      goLive,
      gapAllowed: cursor === 0
    })
    return { start: from, events } satisfies Subscription
  })

  return {
    subscribe,
    /** Cursor of the last published entry: where a subscription of now begins. */
    position: Effect.sync(publisher.position),
    /** @error CursorExpired as of `subscribe` */
    checkCursor: (cursor: number) => Effect.asVoid(replayStart(cursor)),
    subscribers: Effect.sync(publisher.subscribers),
    /** Ends present subscriptions after what is published by now, and later ones at once: the service stops. */
    end: publisher.end
  }
})

/** Publishes every public event in one total order (spec 5), and cuts off a subscriber that falls behind. */
export class EventHub extends Context.Service<EventHub, Effect.Success<ReturnType<typeof make>>>()(
  "muster/events/EventHub"
) {
  /** @param options.replayPage entries that a resuming subscriber reads from the journal at a time (512) */
  static layer(options: { readonly batches?: number; readonly replayPage?: number } = {}) {
    return Layer.effect(EventHub, make(options.batches ?? BATCHES, options.replayPage ?? 512))
  }
}
