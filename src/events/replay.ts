import { Effect, Option, Stream } from "effect"
import type { Unavailable } from "../domain/errors.ts"
import type { JournalEntry } from "../domain/Journal.ts"
import type { Journal } from "../store/journal/Journal.ts"
import { type EncodedEvent, isNews } from "./EncodedEvent.ts"
import type { Outbox } from "./Outbox.ts"

/**
 * Replays the journal until `outbox` fills: no gap, no duplicate. Each pull reads one page, so that a slow subscriber
 * buffers nothing and keeps no read open. When less than a page is left, `goLive` lets the outbox fill. The last page has
 * the events that wait there, without those that are in the journal, too. If entries are pruned before they are
 * read, the outbox is cut off.
 */
export const replay = (options: {
  readonly journal: Journal["Service"]
  /** Cursor after which the replay begins. */
  readonly from: number
  /** Entries of one read. */
  readonly page: number
  readonly outbox: Outbox<EncodedEvent>
  /** Returns the event of an entry, if the subscriber receives it. */
  readonly select: (entry: JournalEntry) => EncodedEvent | undefined
  /** Lets `outbox` fill with the events after a cursor; default: that of the last published event, which it returns. */
  readonly goLive: (after?: number) => number
  /** Whether the first entry may be newer than the one after `from`. */
  readonly gapAllowed: boolean
}): Stream.Stream<EncodedEvent, Unavailable> => {
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
      const events = entries.flatMap((entry) => select(entry) ?? [])
      if (target === undefined && entries.length < page) target = goLive()
      if (target === undefined || position < target) return [events, Option.some(undefined)] as const
      goLive(position)
      const waiting = outbox.takeUnsafe()
      const newer = typeof waiting === "object" ? waiting.filter((event) => isNews(event, position)) : []
      return [[...events, ...newer], Option.none()] as const
    })

    return Stream.paginate(undefined, () => readPage)
  })
}
