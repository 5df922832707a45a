import { Cause, Effect, Latch, type Pull } from "effect"

/**
 * What waits to be sent to one peer, counted in bytes. Publishers never wait: an outbox over its bound is cut off,
 * and what it held is dropped at once. What the last pull handed out counts as unsent until the next pull.
 */
export class Outbox<A> {
  private readonly bound: number
  private items: Array<A> = []
  private waiting = 0
  private inFlight = 0
  private state: "open" | "ending" | "cut off" = "open"
  private readonly changed = Latch.makeUnsafe(false)
  private readonly cut = Latch.makeUnsafe(false)

  /** @param bound most bytes that may be unsent */
  constructor(bound: number) {
    this.bound = bound
  }

  /** Adds items of `bytes` in all; without effect once the outbox has ended. */
  offerAllUnsafe(items: ReadonlyArray<A>, bytes: number): void {
    if (this.state !== "open") return
    if (this.inFlight + this.waiting + bytes > this.bound) {
      this.cutOffUnsafe()
      return
    }
    for (const item of items) this.items.push(item)
    this.waiting += bytes
    this.changed.openUnsafe()
  }

  /** Drops what waits and ends the outbox. */
  cutOffUnsafe(): void {
    if (this.state !== "open") return
    this.state = "cut off"
    this.items = []
    this.waiting = 0
    this.cut.openUnsafe()
    this.changed.openUnsafe()
  }

  /** Ends the outbox once what waits is pulled. */
  endUnsafe(): void {
    if (this.state === "open") this.state = "ending"
    this.changed.openUnsafe()
  }

  /** Makes the present or the next pull answer, with nothing if nothing waits. */
  wakeUnsafe(): void {
    this.changed.openUnsafe()
  }

  get isOpen(): boolean {
    return this.state === "open"
  }

  get overflowed(): boolean {
    return this.state === "cut off"
  }

  /** Waits until the outbox is cut off. */
  get awaitCutOff(): Effect.Effect<void> {
    return this.cut.await
  }

  /**
   * All that waits, as soon as anything does; empty after a wake. Done after the end and once cut off. Interrupting it
   * loses nothing.
   */
  readonly pull: Pull.Pull<ReadonlyArray<A>> = Effect.suspend(() => {
    this.inFlight = 0
    return Effect.andThen(this.changed.await, this.take)
  })

  private readonly take: Pull.Pull<ReadonlyArray<A>> = Effect.suspend(() => {
    if (this.state !== "open" && this.items.length === 0) return Cause.done()
    const batch = this.items
    this.items = []
    this.inFlight = this.waiting
    this.waiting = 0
    if (this.state === "open") this.changed.closeUnsafe()
    return Effect.succeed(batch)
  })
}
