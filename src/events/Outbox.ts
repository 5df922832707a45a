import { Array as Arr, Cause, Data, Effect, Latch, type Pull, Stream } from "effect"

/** The failure of a stream whose subscriber has more unsent bytes than its bound. */
export class SubscriberTooSlow extends Data.TaggedError("SubscriberTooSlow") {}

/**
 * The unsent items of one peer, bounded in bytes. Publishers never wait. An outbox over its bound is cut off: it drops
 * its items at once, and its stream fails. A pulled batch counts as unsent until the next pull.
 */
export class Outbox<A> {
  private readonly bound: number
  private batches: Array<ReadonlyArray<A>> = []
  private waiting = 0
  private inFlight = 0
  private state: "open" | "ending" | "cut off" = "open"
  private readonly changed = Latch.makeUnsafe(false)
  private readonly cut = Latch.makeUnsafe(false)

  /** @param bound maximum of unsent bytes */
  constructor(bound: number) {
    this.bound = bound
  }

  /**
   * Adds items of `bytes` in total, which several outboxes may share; without effect once the outbox has ended. Items that
   * are pulled alone are the same array.
   */
  offerAllUnsafe(items: ReadonlyArray<A>, bytes: number): void {
    if (this.state !== "open" || items.length === 0) return
    if (this.inFlight + this.waiting + bytes > this.bound) {
      this.cutOffUnsafe()
      return
    }
    this.batches.push(items)
    this.waiting += bytes
    this.changed.openUnsafe()
  }

  /** Drops the items and fails the stream. */
  cutOffUnsafe(): void {
    if (this.state !== "open") return
    this.state = "cut off"
    this.batches = []
    this.waiting = 0
    this.cut.openUnsafe()
    this.changed.openUnsafe()
  }

  /** Ends the stream after the items that wait. */
  endUnsafe(): void {
    if (this.state === "open") this.state = "ending"
    this.changed.openUnsafe()
  }

  get isOpen(): boolean {
    return this.state === "open"
  }

  /** Waits until the outbox is cut off. */
  get cutOff(): Effect.Effect<void> {
    return this.cut.await
  }

  /** Waits for items and takes all of them. An interrupted pull loses nothing. */
  private readonly pull: Pull.Pull<Arr.NonEmptyReadonlyArray<A>, SubscriberTooSlow> = Effect.suspend(() => {
    this.inFlight = 0
    return Effect.andThen(this.changed.await, this.take)
  })

  /** The items; each chunk holds all items that wait. */
  readonly stream: Stream.Stream<A, SubscriberTooSlow> = Stream.fromPull(Effect.succeed(this.pull))

  private readonly take = Effect.suspend((): Pull.Pull<Arr.NonEmptyReadonlyArray<A>, SubscriberTooSlow> => {
    const [first = [], second] = this.batches
    const batch = second === undefined ? first : this.batches.flat()
    if (!Arr.isReadonlyArrayNonEmpty(batch)) {
      return this.state === "cut off" ? new SubscriberTooSlow() : Cause.done()
    }
    this.batches = []
    this.inFlight = this.waiting
    this.waiting = 0
    if (this.state === "open") this.changed.closeUnsafe()
    return Effect.succeed(batch)
  })
}
