import { Array as Arr, Context, Effect, Layer, PubSub, type Pull, type Scope, Stream } from "effect"
import { CursorExpired, type Unavailable } from "../domain/errors.ts"
import type { JournalEntry } from "../domain/Journal.ts"
import { Journal } from "../store/journal/Journal.ts"
import { type EncodedEvent, type EventFilter, passes } from "./EncodedEvent.ts"
import { encode } from "./encode.ts"
import { Outbox } from "./Outbox.ts"
import { replayThenLive } from "./replay.ts"

export interface Subscription {
  readonly events: Stream.Stream<EncodedEvent, Unavailable>
  /** `events` one chunk at a time: all that waits, as soon as anything does; empty after `wake`. */
  readonly pull: Pull.Pull<ReadonlyArray<EncodedEvent>, Unavailable>
  /** Makes a pull answer without an event. */
  readonly wake: Effect.Effect<void>
  /** Ends the stream after what waits. */
  readonly end: Effect.Effect<void>
  /** Whether the stream ended because the subscriber did not keep up. */
  readonly overflow: Effect.Effect<boolean>
  /** Waits until the subscriber is cut off; forever if it never is. */
  readonly cutOff: Effect.Effect<void>
}

interface Subscriber {
  readonly filter: EventFilter
  readonly outbox: Outbox<EncodedEvent>
  readonly withCursor: boolean
  /** False while the subscriber still reads the past from the journal. */
  live: boolean
}

/** Entries published before other fibres get a turn, so that a large commit cuts nobody off who keeps up. */
const SLICE = 256

/**
 * Hands every public event to every subscriber, in one total order (decisions, section 6). A subscriber that does
 * not keep up (more than the bound unsent) is cut off; it never slows a publisher or another subscriber.
 */
export class EventHub extends Context.Service<
  EventHub,
  {
    /**
     * Subscribed before it returns: nothing committed afterwards is missed. With `cursor` the stream first replays
     * what came after it; 0 asks for all that is kept. Chunks hold all that is waiting. The stream ends when the
     * subscriber is cut off (`overflow` is then true) or the scope closes.
     *
     * @error CursorExpired `cursor` is older than what is kept, or was never given by this journal
     */
    subscribe(options: {
      readonly filter: EventFilter
      readonly cursor?: number
    }): Effect.Effect<Subscription, CursorExpired | Unavailable, Scope.Scope>
    readonly subscribers: Effect.Effect<number>
  }
>()("muster/events/EventHub") {
  /**
   * @param options.buffer_bytes most unsent bytes of a subscriber (1 MiB)
   * @param options.replay_page  entries that a resuming subscriber reads from the journal at a time (512)
   */
  static layer(
    options: { readonly buffer_bytes?: number; readonly replay_page?: number } = {}
  ): Layer.Layer<EventHub, never, Journal> {
    return Layer.effect(EventHub, make(options.buffer_bytes ?? 1024 * 1024, options.replay_page ?? 512))
  }
}

const make = Effect.fnUntraced(function* (bufferBytes: number, replayPage: number) {
  const journal = yield* Journal
  const subscribers = new Set<Subscriber>()
  const published = yield* PubSub.unbounded<ReadonlyArray<EncodedEvent>>()
  yield* Effect.addFinalizer(() => PubSub.shutdown(published))
  /** Everything up to this cursor was published. */
  let newest = 0

  const publish = (entries: ReadonlyArray<JournalEntry>) => {
    const events: Array<EncodedEvent> = []
    for (const entry of entries) {
      if (entry.cursor <= newest) continue
      newest = entry.cursor
      const event = subscribers.size === 0 ? undefined : encode(entry)
      if (event !== undefined) events.push(event)
    }
    if (events.length > 0) PubSub.publishUnsafe(published, events)
  }

  /**
   * Moves what is published into a subscriber's outbox. It never waits for the peer, so that the PubSub keeps nothing
   * for a slow one; between two batches the peer's own fibre gets its turn.
   */
  const drain = (subscriber: Subscriber, subscription: PubSub.Subscription<ReadonlyArray<EncodedEvent>>) =>
    Effect.flatMap(PubSub.takeAll(subscription), (batches) => {
      const { filter, live, outbox, withCursor } = subscriber
      const wanted = live && outbox.isOpen ? batches.flat().filter((event) => passes(filter, event)) : []
      if (wanted.length === 0) return Effect.void
      outbox.offerAllUnsafe(
        wanted,
        wanted.reduce((bytes, event) => bytes + (withCursor ? event.sseWithId : event.sse).length, 0)
      )
      return Effect.yieldNow
    }).pipe(Effect.forever)

  yield* journal.follow((entries) => {
    if (entries.length <= SLICE) return Effect.sync(() => publish(entries))
    const slices = Arr.chunksOf(entries, SLICE)
    const each = (slice: ReadonlyArray<JournalEntry>) =>
      Effect.andThen(
        Effect.sync(() => publish(slice)),
        Effect.yieldNow
      )
    // A writer that is interrupted half-way must not keep the rest from the subscribers.
    return Effect.uninterruptible(Effect.forEach(slices, each, { discard: true }))
  })

  /** The cursor that a replay begins behind. */
  const replayStart = Effect.fnUntraced(function* (cursor: number) {
    const { oldest, newest } = yield* journal.bounds
    if (cursor === 0) return Math.max(0, oldest - 1)
    if (cursor < oldest - 1) {
      return yield* new CursorExpired({
        detail: `cursor ${cursor} is no longer kept; the oldest is ${oldest - 1}`
      })
    }
    if (cursor > newest) {
      return yield* new CursorExpired({ detail: `cursor ${cursor} was never given; the newest is ${newest}` })
    }
    return cursor
  })

  const subscribe = Effect.fn("EventHub.subscribe")(function* (wanted: {
    readonly filter: EventFilter
    readonly cursor?: number
  }) {
    const { cursor, filter } = wanted
    const from = cursor === undefined ? undefined : yield* replayStart(cursor)
    const outbox = new Outbox<EncodedEvent>(bufferBytes)
    const subscription = yield* PubSub.subscribe(published)
    const subscriber = yield* Effect.acquireRelease(
      Effect.sync(() => {
        const made: Subscriber = {
          filter,
          outbox,
          withCursor: cursor !== undefined,
          live: from === undefined
        }
        subscribers.add(made)
        return made
      }),
      (made) =>
        Effect.sync(() => {
          subscribers.delete(made)
          outbox.endUnsafe()
        })
    )
    yield* Effect.forkScoped(drain(subscriber, subscription))
    const pull: Subscription["pull"] =
      from === undefined
        ? outbox.pull
        : replayThenLive({
            journal,
            from,
            page: replayPage,
            outbox,
            select: (entry) => {
              const event = encode(entry)
              return event !== undefined && passes(filter, event) ? event : undefined
            },
            goLive: () => {
              subscriber.live = true
              return newest
            },
            gapAllowed: cursor === 0
          })
    const nonEmpty: Pull.Pull<Arr.NonEmptyReadonlyArray<EncodedEvent>, Unavailable> = Effect.flatMap(
      pull,
      (events) => (Arr.isReadonlyArrayNonEmpty(events) ? Effect.succeed(events) : nonEmpty)
    )
    return {
      pull,
      events: Stream.fromPull(Effect.succeed(nonEmpty)),
      wake: Effect.sync(() => outbox.wakeUnsafe()),
      end: Effect.sync(() => outbox.endUnsafe()),
      overflow: Effect.sync(() => outbox.overflowed),
      cutOff: outbox.awaitCutOff
    } satisfies Subscription
  })

  return EventHub.of({ subscribe, subscribers: Effect.sync(() => subscribers.size) })
})
