import {
  Array as Arr,
  Cause,
  Clock,
  Context,
  Data,
  Effect,
  Latch,
  Layer,
  Metric,
  Option,
  PubSub,
  type Pull,
  Schedule,
  Scope,
  Semaphore,
  Stream
} from "effect"
import { CursorExpired, type Unavailable } from "../domain/errors.ts"
import type { ServerId } from "../domain/Id.ts"
import { isOptInChange, type JournalEntry, serverOf } from "../domain/Journal.ts"
import { eventLag, subscribersCutOff } from "../domain/metrics.ts"
import type { Server } from "../domain/Server.ts"
import { isOptIn } from "../domain/ServerEvent.ts"
import { Journal } from "../store/journal/Journal.ts"
import { Batch, select, selectionOf } from "./Batch.ts"
import type { EncodedEvent, EventFilter, EventInclude } from "./EncodedEvent.ts"
import { encode, encodeLive } from "./encode.ts"
import { LiveFeed, type LiveNews } from "./LiveFeed.ts"
import { ServerSummaries } from "./ServerSummaries.ts"

/** The cursor of a subscription: that of an event, or the current position. */
export type StartCursor = number | "now"

export interface SubscribeOptions {
  readonly filter: EventFilter
  readonly include?: EventInclude
  readonly cursor?: StartCursor
}

/** The subscriber has missed events, and resumes with its last cursor. */
export class SubscriberTooSlow extends Data.TaggedError("SubscriberTooSlow") {}

/** Events that arrive together; `beat`: there was nothing for a while (spec 5.3). */
export type Delivery = ReadonlyArray<EncodedEvent> | "beat"

export interface Subscription {
  /** Cursor after which the events begin. */
  readonly start: number
  /** To be run once. It ends when the service stops. */
  readonly events: Stream.Stream<Delivery, SubscriberTooSlow | Unavailable>
}

const nothing: EventInclude = new Set()

/** Bytes of a batch, about: a subscriber that does not read holds no more. */
const BATCH_BYTES = 16 * 1024

/** Batches that a subscriber may be behind: all slow subscribers together hold these. */
const BATCHES = 512

/** The time between two beats. */
const BEAT = "15 seconds"

/**
 * Publishes every public event to every subscriber, in one total order (spec 5). A subscriber that falls behind is cut
 * off; it never slows a publisher or another subscriber.
 */
export class EventHub extends Context.Service<
  EventHub,
  {
    /**
     * Subscribes before the effect returns: the stream misses no later event. With a number as `cursor` the stream
     * first replays the events after it; 0 requests all retained events. The subscription ends when the scope closes.
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
    /** Ends every subscription after what is published by now, and every later one at once: the service stops. */
    readonly end: Effect.Effect<void>
  }
>()("muster/events/EventHub") {
  /**
   * @param options.batches    batches that a subscriber may be behind (512)
   * @param options.replayPage entries that a resuming subscriber reads from the journal at a time (512)
   */
  static layer(
    options: { readonly batches?: number; readonly replayPage?: number } = {}
  ): Layer.Layer<EventHub, Unavailable, Journal | LiveFeed | ServerSummaries> {
    return Layer.effect(EventHub, make(options.batches ?? BATCHES, options.replayPage ?? 512))
  }
}

/** An entry or news that is to be published, with the server at that time. */
type Publication = { readonly server: Server | null } & (
  | { readonly entry: JournalEntry }
  | { readonly news: LiveNews; readonly cursor: number }
)

const encoded = (it: Publication): EncodedEvent | undefined =>
  "entry" in it ? encode(it.entry, it.server) : encodeLive(it.news, it.cursor, it.server)

/** What the subscribers receive: a batch, or a message that is no event, numbered like one. */
type Message = Batch | { readonly number: number; readonly type: "beat" | "end" }

const make = Effect.fnUntraced(function* (batches: number, replayPage: number) {
  const journal = yield* Journal
  const summaries = yield* ServerSummaries
  const live = yield* LiveFeed
  const published = yield* Effect.acquireRelease(PubSub.sliding<Message>(batches), PubSub.shutdown)
  /** Cursor of the last published entry. */
  let newest = 0
  /** The number of the last message. */
  let number = 0
  let hasEnded = false
  /** Subscribers, those that name an opt-in topic, and those that include `server`. */
  const demand = { all: 0, optIn: 0, server: 0 }
  /** What this turn publishes. */
  let waiting: Array<Publication> = []
  const some = Latch.makeUnsafe(false)

  const count = ({ filter, include = nothing }: SubscribeOptions, by: 1 | -1) => {
    demand.all += by
    if ([...(filter.topics ?? [])].some(isOptIn)) demand.optIn += by
    if (include.has("server")) demand.server += by
  }

  const summaryOf = (id: ServerId | undefined) => (id === undefined ? null : (summaries.find(id) ?? null))
  const serverNow = (id: ServerId | undefined) => (demand.server === 0 ? null : summaryOf(id))

  const publish = (entries: ReadonlyArray<JournalEntry>) => {
    for (const entry of entries) {
      if (entry.cursor <= newest) continue
      newest = entry.cursor
      if (demand.all === 0 || (isOptInChange(entry.change) && demand.optIn === 0)) continue
      waiting.push({ entry, server: serverNow(serverOf(entry.change)) })
    }
    if (waiting.length > 0) some.openUnsafe()
  }

  live.receive((news) => {
    if (demand.optIn === 0 || news.length === 0) return
    for (const it of news) waiting.push({ news: it, cursor: newest, server: serverNow(it.server_id) })
    some.openUnsafe()
  })

  const send = (message: (number: number) => Message) =>
    Effect.suspend(() => {
      number += 1
      return PubSub.publish(published, message(number))
    })
  const beat = send((at) => ({ number: at, type: "beat" }))
  const end = Effect.suspend(() => {
    hasEnded = true
    return Effect.andThen(
      flush,
      send((at) => ({ number: at, type: "end" }))
    )
  })

  /** Publishes events in batches; between two of them, the subscribers write. */
  const sendAll = Effect.fnUntraced(function* (publications: ReadonlyArray<Publication>) {
    const now = yield* Clock.currentTimeMillis
    let events: Array<EncodedEvent> = []
    let bytes = 0
    const leave = () => {
      const batch = events
      events = []
      bytes = 0
      if (!Arr.isArrayNonEmpty(batch)) return Effect.void
      return Effect.andThen(
        send((at) => new Batch(at, batch)),
        Effect.yieldNow
      )
    }
    for (const it of publications) {
      const event = encoded(it)
      if (event === undefined) continue
      if ("entry" in it) yield* Metric.update(eventLag, (now - it.entry.at) / 1000)
      events.push(event)
      bytes += event.sse.length
      if (bytes >= BATCH_BYTES) yield* leave()
    }
    yield* leave()
  })
  const inOrder = Semaphore.makeUnsafe(1)
  const flush = Effect.suspend(() => {
    const publications = waiting
    waiting = []
    some.closeUnsafe()
    return sendAll(publications)
  }).pipe(
    inOrder.withPermits(1),
    // All subscribers may lack events now: a number without a message is a gap, and they resume.
    Effect.catchDefect((defect) => {
      number += 1
      return Effect.andThen(Effect.logError("events were not delivered", defect), beat)
    })
  )
  // What is published in the same turn leaves together.
  const turn = Effect.andThen(some.await, Effect.andThen(Effect.yieldNow, flush))
  yield* Effect.forkScoped(Effect.forever(turn))
  yield* beat.pipe(Effect.schedule(Schedule.spaced(BEAT)), Effect.forkScoped)

  yield* journal.follow("publish", (entries) => Effect.sync(() => publish(entries)))

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

  const tooSlow = Effect.andThen(Metric.update(subscribersCutOff, 1), new SubscriberTooSlow())

  // A span would stay in memory as long as the stream.
  const subscribe = Effect.fnUntraced(function* (wanted: SubscribeOptions) {
    const { cursor, filter, include = nothing } = wanted
    const from = typeof cursor === "number" ? yield* replayStart(cursor) : undefined
    const selection = selectionOf(filter, include)
    const scope = yield* Effect.scope
    // `acquireRelease` would hold the whole context of the request.
    yield* Scope.addFinalizer(
      scope,
      Effect.sync(() => count(wanted, -1))
    )
    count(wanted, 1)

    /** Subscribes at once; returns the events after a position. */
    const goLive = Effect.gen(function* () {
      const subscription = yield* Scope.provide(PubSub.subscribe(published), scope)
      let seen = number
      const eventsAfter = (position: number): Stream.Stream<Delivery, SubscriberTooSlow> => {
        // One batch at a time: several would be one copy for each subscriber.
        const pull: Pull.Pull<Arr.NonEmptyReadonlyArray<Delivery>, SubscriberTooSlow> = Effect.flatMap(
          PubSub.take(subscription),
          (message) => {
            seen += 1
            if (message.number !== seen) return tooSlow
            if (!(message instanceof Batch))
              return message.type === "end" ? Cause.done() : Effect.succeed(Arr.of<Delivery>("beat"))
            const events = message.select(selection, position)
            return events.length === 0 ? pull : Effect.succeed(Arr.of<Delivery>(events))
          }
        )
        return hasEnded && seen === number ? Stream.empty : Stream.fromPull(Effect.succeed(pull))
      }
      return { position: newest, eventsAfter }
    })

    if (from === undefined) {
      const { eventsAfter, position } = yield* goLive
      return { start: position, events: eventsAfter(position) } satisfies Subscription
    }
    const selected = (entries: ReadonlyArray<JournalEntry>) =>
      select(
        selection,
        entries.flatMap(
          (entry) => encode(entry, include.has("server") ? summaryOf(serverOf(entry.change)) : null) ?? []
        )
      )

    /**
     * Replays the journal: no gap, no duplicate. Each pull reads one page, so that a slow subscriber buffers nothing and
     * keeps no read open. When less than a page is left, the subscriber joins the others.
     */
    const replay = Stream.suspend(() => {
      let position = from
      // The first retained entry may be newer than the one after 0.
      let gapAllowed = cursor === 0
      /** Set while the rest is read, up to its position. */
      let joined: Effect.Success<typeof goLive> | undefined
      const readPage = Effect.gen(function* () {
        const entries = yield* Stream.runCollect(Stream.take(journal.after(position), replayPage))
        const first = entries.at(0)
        const missing =
          first === undefined
            ? joined !== undefined && joined.position > position
            : first.cursor !== position + 1
        if (missing && !gapAllowed) {
          // The client resumes with its last cursor, which is then 410.
          yield* Effect.logWarning(`event replay stopped: entries after ${position} are no longer retained`)
          return yield* tooSlow
        }
        gapAllowed = false
        position = entries.at(-1)?.cursor ?? position
        if (entries.length < replayPage) joined ??= yield* goLive
        const isLast = joined !== undefined && position >= joined.position
        const events = selected(entries)
        return [
          events.length === 0 ? [] : [events],
          isLast ? Option.none<void>() : Option.some(undefined)
        ] as const
      })
      return Stream.concat(
        Stream.paginate(undefined, () => readPage),
        Stream.suspend(() => joined?.eventsAfter(position) ?? Stream.empty)
      )
    })
    return { start: from, events: replay } satisfies Subscription
  })

  return EventHub.of({
    subscribe,
    position: Effect.sync(() => newest),
    checkCursor: (cursor) => Effect.asVoid(replayStart(cursor)),
    subscribers: Effect.sync(() => demand.all),
    end
  })
})
