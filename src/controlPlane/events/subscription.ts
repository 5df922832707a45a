import { Array as Arr, Cause, Data, Effect, Metric, Option, PubSub, type Pull, Stream } from "effect"
import type { Unavailable } from "../../contract/domain/errors.ts"
import type { JournalEntry } from "../../contract/domain/Journal.ts"
import { subscribersCutOff } from "../../shared/observability/metrics.ts"
import type { Journal } from "../store/journal/Journal.ts"
import type { EncodedEvent } from "./EncodedEvent.ts"
import { Batch, type Publisher, type Selection } from "./Publisher.ts"

/** The subscriber has missed events, and resumes with its last cursor. */
export class SubscriberTooSlow extends Data.TaggedError("SubscriberTooSlow") {}

/** Events that arrive together, or a `beat` after a time without any (spec 5.3). */
export type Delivery = ReadonlyArray<EncodedEvent> | "beat"

const tooSlow = Effect.andThen(Metric.update(subscribersCutOff, 1), new SubscriberTooSlow())

/** Subscribes among the others, from the last published entry on. */
export const joinOthers = Effect.fnUntraced(function* (publisher: Publisher, selection: Selection) {
  const subscription = yield* PubSub.subscribe(publisher.messages)
  let seen = publisher.number()
  /** Returns the events after a position; the stream runs once. */
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
    return publisher.hasEnded() && seen === publisher.number()
      ? Stream.empty
      : Stream.fromPull(Effect.succeed(pull))
  }
  return { position: publisher.position(), eventsAfter }
})

type Joined = Effect.Success<ReturnType<typeof joinOthers>>

/** Replays the journal, a page a pull so that nothing is buffered, then joins the others without gap or duplicate. */
export const replay = (options: {
  readonly journal: Journal["Service"]
  readonly from: number
  readonly page: number
  readonly selected: (entries: ReadonlyArray<JournalEntry>) => ReadonlyArray<EncodedEvent>
  readonly goLive: Effect.Effect<Joined>
  /** Whether the first entry may be newer than the one after `from`. */
  readonly gapAllowed: boolean
}): Stream.Stream<Delivery, SubscriberTooSlow | Unavailable> =>
  Stream.suspend(() => {
    const { goLive, journal, page, selected } = options
    let position = options.from
    let gapAllowed = options.gapAllowed
    let joined: Joined | undefined
    const readPage = Effect.gen(function* () {
      const entries = yield* Stream.runCollect(Stream.take(journal.after(position), page))
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
      if (entries.length < page) joined ??= yield* goLive
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
