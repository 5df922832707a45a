import { Effect, Option, Stream } from "effect"
import type { Unavailable } from "../domain/errors.ts"
import type { JournalEntry } from "../domain/Journal.ts"
import type { Journal } from "../store/journal/Journal.ts"
import { type EncodedEvent, isNews } from "./EncodedEvent.ts"
import type { Outbox, SubscriberTooSlow } from "./Outbox.ts"

/**
 * Replays the journal, then continues with `outbox`: no gap, no duplicate. Each pull reads one page, so that a slow
 * subscriber buffers nothing and keeps no read open. When less than a page is left, `goLive` lets the outbox fill.
 * Events that are then in both the journal and the outbox are recognised by their cursor.
 *
 * @error SubscriberTooSlow entries were pruned before the subscriber read them
 */
export const replayThenLive = (options: {
  readonly journal: Journal["Service"]
  /** Cursor after which the replay begins. */
  readonly from: number
  /** Entries of one read. */
  readonly page: number
  readonly outbox: Outbox<EncodedEvent>
  /** Returns the event of an entry, if the subscriber receives it. */
  readonly select: (entry: JournalEntry) => EncodedEvent | undefined
  /** Lets `outbox` fill; returns the cursor of the last event published before. */
  readonly goLive: () => number
  /** Whether the first entry may be newer than the one after `from`. */
  readonly gapAllowed: boolean
}): Stream.Stream<EncodedEvent, SubscriberTooSlow | Unavailable> => {
  const { goLive, journal, outbox, page, select } = options
  return Stream.suspend(() => {
    let position = options.from
    let gapAllowed = options.gapAllowed
    /** Cursor up to which the journal is read; undefined while the outbox does not fill yet. */
    let target: number | undefined

    const readPage = Effect.gen(function* () {
      if (!outbox.isOpen) return [[], Option.none()] as const
      const entries = yield* Stream.runCollect(Stream.take(journal.after(position), page))
      const first = entries.at(0)
      const missing =
        first === undefined ? target !== undefined && target > position : first.cursor !== position + 1
      if (missing && !gapAllowed) {
        // The client resumes with its last cursor, which is then 410.
        yield* Effect.logWarning(`event replay stopped: entries after ${position} are no longer retained`)
        outbox.cutOffUnsafe()
        return [[], Option.none()] as const
      }
      gapAllowed = false
      position = entries.at(-1)?.cursor ?? position
      if (target === undefined && entries.length < page) target = goLive()
      const next = target !== undefined && position >= target ? Option.none() : Option.some(undefined)
      return [entries.flatMap((entry) => select(entry) ?? []), next] as const
    })

    const replay = Stream.paginate(undefined, () => readPage)
    return Stream.concat(
      replay,
      Stream.filter(outbox.stream, (event) => isNews(event, position))
    )
  })
}
