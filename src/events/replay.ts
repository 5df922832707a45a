import { Cause, Effect, type Pull, Stream } from "effect"
import type { Unavailable } from "../domain/errors.ts"
import type { JournalEntry } from "../domain/Journal.ts"
import type { Journal } from "../store/journal/Journal.ts"
import type { EncodedEvent } from "./EncodedEvent.ts"
import type { Outbox } from "./Outbox.ts"

/**
 * Reads the journal page by page, each when it is pulled, until nothing is left, and goes on with `outbox`: no gap,
 * no duplicate. Nothing is buffered and no read stays open while the peer takes its time. The outbox fills from
 * `goLive` on, which is called when less than a page is left; what is then read from both is told apart by its cursor.
 */
export const replayThenLive = (options: {
  readonly journal: Journal["Service"]
  /** Cursor that the replay begins behind. */
  readonly from: number
  /** Entries of one read. */
  readonly page: number
  readonly outbox: Outbox<EncodedEvent>
  /** The event that the subscriber gets for an entry, if any. */
  readonly select: (entry: JournalEntry) => EncodedEvent | undefined
  /** Lets `outbox` fill from now on; answers the cursor up to which events were handed out before. */
  readonly goLive: () => number
  /** Whether the first entry may be newer than the one after `from`. */
  readonly gapAllowed: boolean
}): Pull.Pull<ReadonlyArray<EncodedEvent>, Unavailable> => {
  const { goLive, journal, outbox, page, select } = options
  let position = options.from
  let gapAllowed = options.gapAllowed
  /** Cursor up to which the journal must be read; undefined while the outbox does not fill yet. */
  let target: number | undefined

  const read = Effect.gen(function* () {
    if (!outbox.isOpen) return yield* Cause.done()
    const entries = yield* Stream.runCollect(Stream.take(journal.after(position), page))
    const first = entries.at(0)
    const missing =
      first === undefined ? target !== undefined && target > position : first.cursor !== position + 1
    if (missing && !gapAllowed) {
      // Pruned before a slow subscriber came so far. It resumes with its last cursor and is told: 410.
      yield* Effect.logWarning(`event replay stopped: entries after ${position} are no longer kept`)
      outbox.cutOffUnsafe()
      return yield* Cause.done()
    }
    gapAllowed = false
    position = entries.at(-1)?.cursor ?? position
    if (target === undefined && entries.length < page) target = goLive()
    return entries.flatMap((entry) => select(entry) ?? [])
  })

  const live = Effect.map(outbox.pull, (events) =>
    // Sorted by cursor: looking at the first tells whether any was replayed.
    (events[0]?.cursor ?? Number.POSITIVE_INFINITY) <= position
      ? events.filter((event) => event.cursor > position)
      : events
  )

  return Effect.suspend(
    (): Pull.Pull<ReadonlyArray<EncodedEvent>, Unavailable> =>
      target !== undefined && position >= target ? live : read
  )
}
