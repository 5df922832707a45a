import { Array as Arr, Effect } from "effect"

/** `ended`: after the items that waited; `cut off`: without them. */
export type OutboxEnd = "ended" | "cut off"

/**
 * The unsent items of one peer, bounded in bytes. Publishers never wait. An outbox over its bound is cut off: it drops
 * its items at once. A taken batch counts as unsent until the next take. Readers are callbacks, not fibers: a service has
 * thousands of idle outboxes.
 */
export class Outbox<A> {
  private readonly bound: number
  private batches: Array<ReadonlyArray<A>> = []
  private waiting = 0
  private inFlight = 0
  private state: "open" | "ending" | "cut off" = "open"
  private listeners: ReadonlyArray<() => void> = []

  /** @param bound maximum of unsent bytes */
  constructor(bound: number) {
    this.bound = bound
  }

  /** Calls `listener` when there are items, and when the outbox ends; returns how to remove the listener. */
  listenUnsafe(listener: () => void): () => void {
    this.listeners = [...this.listeners, listener]
    return () => {
      this.listeners = this.listeners.filter((other) => other !== listener)
    }
  }

  private changed(): void {
    for (const listener of this.listeners) listener()
  }

  /**
   * Adds items of `bytes` in total, which several outboxes may share; without effect once the outbox has ended. Items that
   * are taken alone are the same array.
   */
  offerAllUnsafe(items: ReadonlyArray<A>, bytes: number): void {
    if (this.state !== "open" || items.length === 0) return
    if (this.inFlight + this.waiting + bytes > this.bound) {
      this.cutOffUnsafe()
      return
    }
    this.batches.push(items)
    this.waiting += bytes
    this.changed()
  }

  /** Drops the items and ends the outbox. */
  cutOffUnsafe(): void {
    if (this.state !== "open") return
    this.state = "cut off"
    this.batches = []
    this.waiting = 0
    this.changed()
  }

  /** Ends the outbox after the items that wait. */
  endUnsafe(): void {
    if (this.state !== "open") return
    this.state = "ending"
    this.changed()
  }

  get isOpen(): boolean {
    return this.state === "open"
  }

  get isCutOff(): boolean {
    return this.state === "cut off"
  }

  /** Takes all items that wait; undefined: none wait, and the outbox is open. */
  takeUnsafe(): Arr.NonEmptyReadonlyArray<A> | OutboxEnd | undefined {
    const [first = [], second] = this.batches
    const batch = second === undefined ? first : this.batches.flat()
    this.inFlight = this.waiting
    if (!Arr.isReadonlyArrayNonEmpty(batch)) {
      if (this.state === "open") return undefined
      return this.state === "ending" ? "ended" : "cut off"
    }
    this.batches = []
    this.waiting = 0
    return batch
  }

  /** Waits until the outbox is cut off. */
  get cutOff(): Effect.Effect<void> {
    return Effect.callback<void>((resume) => {
      if (this.isCutOff) return resume(Effect.void)
      const remove = this.listenUnsafe(() => {
        if (!this.isCutOff) return
        remove()
        resume(Effect.void)
      })
      return Effect.sync(remove)
    })
  }
}
