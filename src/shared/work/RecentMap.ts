/** A bounded cache, emptied when full. The garbage collector visits the entries of a `WeakMap` in one pause. */
export class RecentMap<K, V> extends Map<K, V> {
  readonly #most: number
  readonly #costOf: (key: K, value: V) => number
  #cost = 0

  /** @param costOf cost of an entry; an entry over half of `most`, the cost of all, is not kept */
  constructor(most = 1_000, costOf: (key: K, value: V) => number = () => 1) {
    super()
    this.#most = most
    this.#costOf = costOf
  }

  override set(key: K, value: V): this {
    const cost = this.#costOf(key, value)
    if (cost > Math.max(1, this.#most / 2)) return this
    if (!this.has(key)) {
      if (this.#cost + cost > this.#most) this.clear()
      this.#cost += cost
    }
    return super.set(key, value)
  }

  override clear(): void {
    this.#cost = 0
    super.clear()
  }
}
