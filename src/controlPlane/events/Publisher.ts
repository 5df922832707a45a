import { Array as Arr, Clock, Effect, Latch, Metric, PubSub, Schedule, Semaphore } from "effect"
import type { ServerId } from "../../contract/domain/Id.ts"
import { isOptInChange, type JournalEntry, serverOf } from "../../contract/domain/Journal.ts"
import type { Server } from "../../contract/domain/Server.ts"
import { isOptIn } from "../../contract/domain/ServerEvent.ts"
import { eventLag } from "../../shared/observability/metrics.ts"
import { type EncodedEvent, type EventFilter, type EventInclude, isNews, passes } from "./EncodedEvent.ts"
import { encode, encodeLive } from "./encode.ts"
import type { LiveNews } from "./LiveFeed.ts"

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

/** The approximate size of a batch. A subscriber that does not read holds one. */
const BATCH_BYTES = 16 * 1024

const BEAT = "15 seconds"

/** A message to all subscribers. Events, beats and the end have numbers in one series. */
type Message = Batch | { readonly number: number; readonly type: "beat" | "end" }

type Publication = { readonly server: Server | null } & (
  | { readonly entry: JournalEntry }
  | { readonly news: LiveNews; readonly cursor: number }
)

const encoded = (it: Publication): EncodedEvent | undefined =>
  "entry" in it ? encode(it.entry, it.server) : encodeLive(it.news, it.cursor, it.server)

/** The needs of the present subscribers: nothing else is encoded. */
interface Demand {
  all: number
  optIn: number
  server: number
}

/** Publishes entries and live news to all subscribers, in batches. */
export const makePublisher = Effect.fnUntraced(function* (options: {
  readonly batches: number
  readonly find: (id: ServerId) => Server | undefined
}) {
  const messages = yield* Effect.acquireRelease(PubSub.sliding<Message>(options.batches), PubSub.shutdown)
  let newest = 0
  let number = 0
  let hasEnded = false
  const demand: Demand = { all: 0, optIn: 0, server: 0 }
  let waiting: Array<Publication> = []
  const some = Latch.makeUnsafe(false)

  /** Counts a subscriber and returns the function that ends the count. */
  const count = ({ filter, include }: { readonly filter: EventFilter; readonly include?: EventInclude }) => {
    const add = (by: 1 | -1) => {
      demand.all += by
      if ([...(filter.topics ?? [])].some(isOptIn)) demand.optIn += by
      if (include?.has("server") === true) demand.server += by
    }
    add(1)
    return () => add(-1)
  }
  const serverNow = (id: ServerId | undefined) =>
    id === undefined || demand.server === 0 ? null : (options.find(id) ?? null)

  const publish = (entries: ReadonlyArray<JournalEntry>): void => {
    for (const entry of entries) {
      if (entry.cursor <= newest) continue
      newest = entry.cursor
      if (demand.all === 0 || (isOptInChange(entry.change) && demand.optIn === 0)) continue
      waiting.push({ entry, server: serverNow(serverOf(entry.change)) })
    }
    if (waiting.length > 0) some.openUnsafe()
  }
  const publishLive = (news: ReadonlyArray<LiveNews>): void => {
    if (demand.optIn === 0 || news.length === 0) return
    for (const it of news) waiting.push({ news: it, cursor: newest, server: serverNow(it.server_id) })
    some.openUnsafe()
  }

  const send = (message: (number: number) => Message) =>
    Effect.suspend(() => {
      number += 1
      return PubSub.publish(messages, message(number))
    })
  const beat = send((at) => ({ number: at, type: "beat" }))

  /** Encodes and sends publications in batches, between which the subscribers write. */
  const sendAll = Effect.fnUntraced(function* (publications: ReadonlyArray<Publication>) {
    const now = yield* Clock.currentTimeMillis
    let events: Array<EncodedEvent> = []
    let bytes = 0
    for (const [index, it] of publications.entries()) {
      const event = encoded(it)
      if (event !== undefined) {
        if ("entry" in it) yield* Metric.update(eventLag, (now - it.entry.at) / 1000)
        events.push(event)
        bytes += event.sse.length
      }
      if (bytes < BATCH_BYTES && index < publications.length - 1) continue
      const batch = events
      events = []
      bytes = 0
      if (!Arr.isArrayNonEmpty(batch)) continue
      yield* send((at) => new Batch(at, batch))
      yield* Effect.yieldNow
    }
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
  // The publications of one turn leave together.
  const turn = Effect.andThen(some.await, Effect.andThen(Effect.yieldNow, flush))
  yield* Effect.forkScoped(Effect.forever(turn))
  yield* beat.pipe(Effect.schedule(Schedule.spaced(BEAT)), Effect.forkScoped)

  return {
    messages,
    position: () => newest,
    number: () => number,
    hasEnded: () => hasEnded,
    subscribers: () => demand.all,
    count,
    publish,
    publishLive,
    /** Entries up to this cursor count as published. */
    startAt: (cursor: number) => {
      newest = Math.max(newest, cursor)
    },
    end: Effect.suspend(() => {
      hasEnded = true
      return Effect.andThen(flush, Effect.asVoid(send((at) => ({ number: at, type: "end" }))))
    })
  }
})

export type Publisher = Effect.Success<ReturnType<typeof makePublisher>>
