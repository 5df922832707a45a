import { Array as Arr, Clock, Context, Effect, Layer, Metric, PubSub, Scope, Stream } from "effect"
import { CursorExpired, type Unavailable } from "../domain/errors.ts"
import type { ServerId } from "../domain/Id.ts"
import { isOptInChange, type JournalEntry, serverOf } from "../domain/Journal.ts"
import { eventLag, subscribersCutOff } from "../domain/metrics.ts"
import { isOptIn } from "../domain/ServerEvent.ts"
import { Journal } from "../store/journal/Journal.ts"
import { type EncodedEvent, type EventFilter, type EventInclude, passes } from "./EncodedEvent.ts"
import { encode, encodeLive } from "./encode.ts"
import { fanOut, type Subscriber, selectionOf } from "./fanOut.ts"
import { LiveFeed, type LiveNews } from "./LiveFeed.ts"
import { Outbox } from "./Outbox.ts"
import { replay } from "./replay.ts"
import { ServerSummaries } from "./ServerSummaries.ts"

/** The cursor of a subscription: that of an event, or the current position. */
export type StartCursor = number | "now"

export interface SubscribeOptions {
  readonly filter: EventFilter
  readonly include?: EventInclude
  readonly cursor?: StartCursor
}

export interface Subscription {
  /** Cursor after which the events begin. */
  readonly start: number
  /** The events before those of `live`; to be run once, to its end. */
  readonly replay: Stream.Stream<EncodedEvent, Unavailable>
  readonly live: Outbox<EncodedEvent>
}

const nothing: EventInclude = new Set()

/** Entries published before other fibres run, so that a large commit cuts off no subscriber that keeps up. */
const SLICE = 256

/**
 * Publishes every public event to every subscriber, in one total order (spec 5). A subscriber with more
 * unsent bytes than the bound is cut off; it never slows a publisher or another subscriber.
 */
export class EventHub extends Context.Service<
  EventHub,
  {
    /**
     * Subscribes before the effect returns: the stream misses no later event. With a number as `cursor` the stream
     * first replays the events after it; 0 requests all retained events. The subscription ends when
     * the scope closes.
     *
     * @error CursorExpired `cursor` is no longer retained, or the journal never issued it
     */
    subscribe(
      options: SubscribeOptions
    ): Effect.Effect<Subscription, CursorExpired | Unavailable, Scope.Scope>
    /** Cursor of the last published entry: where a subscription of now begins. */
    readonly position: Effect.Effect<number>
    /** @error CursorExpired as of {@link subscribe} */
    checkCursor(cursor: number): Effect.Effect<void, CursorExpired | Unavailable>
    readonly subscribers: Effect.Effect<number>
  }
>()("muster/events/EventHub") {
  /**
   * @param options.bufferBytes maximum of unsent bytes of a subscriber (1 MiB)
   * @param options.replayPage  entries that a resuming subscriber reads from the journal at a time (512)
   */
  static layer(
    options: { readonly bufferBytes?: number; readonly replayPage?: number } = {}
  ): Layer.Layer<EventHub, Unavailable, Journal | LiveFeed | ServerSummaries> {
    return Layer.effect(EventHub, make(options.bufferBytes ?? 1024 * 1024, options.replayPage ?? 512))
  }
}

const make = Effect.fnUntraced(function* (bufferBytes: number, replayPage: number) {
  const journal = yield* Journal
  const summaries = yield* ServerSummaries
  const live = yield* LiveFeed
  const subscribers = new Set<Subscriber>()
  const published = yield* PubSub.unbounded<ReadonlyArray<EncodedEvent>>()
  yield* Effect.addFinalizer(() => PubSub.shutdown(published))
  /** Cursor of the last published entry. */
  let newest = 0
  /** Subscribers that named an opt-in topic, and those that include `server`. */
  const demand = { optIn: 0, server: 0 }

  const count = ({ filter, include }: Subscriber, by: 1 | -1) => {
    if ([...(filter.topics ?? [])].some(isOptIn)) demand.optIn += by
    if (include.has("server")) demand.server += by
  }

  const summaryOf = (id: ServerId) => summaries.find(id) ?? null
  const summaryFor = ({ change }: JournalEntry) => {
    const id = serverOf(change)
    return id === undefined ? null : summaryOf(id)
  }

  const toEvent = (entry: JournalEntry) => {
    if (subscribers.size === 0) return undefined
    if (isOptInChange(entry.change) && demand.optIn === 0) return undefined
    return encode(entry, demand.server === 0 ? null : summaryFor(entry))
  }

  const publish = (entries: ReadonlyArray<JournalEntry>, now: number) => {
    const events: Array<EncodedEvent> = []
    let oldest = now
    for (const entry of entries) {
      if (entry.cursor <= newest) continue
      newest = entry.cursor
      const event = toEvent(entry)
      if (event === undefined) continue
      events.push(event)
      oldest = Math.min(oldest, entry.at)
    }
    if (events.length === 0) return Effect.void
    PubSub.publishUnsafe(published, events)
    return Metric.update(eventLag, (now - oldest) / 1000)
  }

  /** Publishes entries; the lag is that of the oldest one. */
  const publishNow = (entries: ReadonlyArray<JournalEntry>) =>
    Effect.flatMap(Clock.currentTimeMillis, (now) => publish(entries, now))

  /** Publishes live news at the current position. */
  const publishLive = (news: ReadonlyArray<LiveNews>) => {
    if (demand.optIn === 0) return
    PubSub.publishUnsafe(
      published,
      news.map((it) => encodeLive(it, newest, demand.server === 0 ? null : summaryOf(it.server_id)))
    )
  }
  live.receive(publishLive)

  // The fiber takes events at once, so that the PubSub retains nothing for a slow subscriber.
  const feed = yield* PubSub.subscribe(published)
  const cutAllOff = Effect.sync(() => {
    for (const { outbox } of subscribers) outbox.cutOffUnsafe()
  })
  const turn = Effect.gen(function* () {
    for (const slice of Arr.chunksOf((yield* PubSub.takeAll(feed)).flat(), SLICE)) {
      const cutOff = fanOut(subscribers, slice)
      if (cutOff > 0) yield* Metric.update(subscribersCutOff, cutOff)
      // The subscribers write; what is published meanwhile leaves together.
      yield* Effect.yieldNow
    }
  }).pipe(
    // Some subscribers may lack events now: all are cut off, and resume.
    Effect.catchDefect((defect) =>
      Effect.andThen(Effect.logError("events were not delivered", defect), cutAllOff)
    )
  )
  yield* Effect.forkScoped(Effect.forever(turn))

  yield* journal.follow("publish", (entries) => {
    if (entries.length <= SLICE) return publishNow(entries)
    const slices = Arr.chunksOf(entries, SLICE)
    const each = (slice: ReadonlyArray<JournalEntry>) => Effect.andThen(publishNow(slice), Effect.yieldNow)
    // The subscribers also get the rest of a commit whose writer is interrupted.
    return Effect.uninterruptible(Effect.forEach(slices, each, { discard: true }))
  })

  // After the registration: no entry is then missing in between.
  newest = Math.max(newest, (yield* journal.bounds).newest)

  /** Returns the cursor after which a replay begins. */
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

  // A span would stay in memory as long as the stream.
  const subscribe = Effect.fnUntraced(function* (wanted: SubscribeOptions) {
    const { cursor, filter, include = nothing } = wanted
    const from = typeof cursor === "number" ? yield* replayStart(cursor) : undefined
    const outbox = new Outbox<EncodedEvent>(bufferBytes)
    const subscriber: Subscriber = {
      filter,
      include,
      outbox,
      withCursor: cursor !== undefined,
      selection: selectionOf(filter, include, cursor !== undefined),
      from: undefined
    }
    const leave = Effect.sync(() => {
      if (subscribers.delete(subscriber)) count(subscriber, -1)
      outbox.endUnsafe()
    })
    const scope = yield* Effect.scope
    // `acquireRelease` would hold the whole context of the request.
    yield* Scope.addFinalizer(scope, leave)
    subscribers.add(subscriber)
    count(subscriber, 1)
    const goLive = (after = newest) => {
      subscriber.from = after
      return after
    }
    const start = from ?? goLive()
    const replayed =
      from === undefined
        ? Stream.empty
        : replay({
            journal,
            from,
            page: replayPage,
            outbox,
            select: (entry) => {
              const event = encode(entry, include.has("server") ? summaryFor(entry) : null)
              return event !== undefined && passes(filter, event) ? event.including(include) : undefined
            },
            goLive,
            gapAllowed: cursor === 0
          })
    return { start, replay: replayed, live: outbox } satisfies Subscription
  })

  return EventHub.of({
    subscribe,
    position: Effect.sync(() => newest),
    checkCursor: (cursor) => Effect.asVoid(replayStart(cursor)),
    subscribers: Effect.sync(() => subscribers.size)
  })
})
