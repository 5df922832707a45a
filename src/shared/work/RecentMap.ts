/**
 * A bounded cache of computed results, which is emptied when it is full. It replaces a `WeakMap`, whose entries the garbage
 * collector visits in a single pause.
 */
export class RecentMap<K, V> extends Map<K, V> {
  readonly #most: number
  readonly #costOf: (key: K, value: V) => number
  #cost = 0

  /**
   * @param most   cost of all entries
   * @param costOf cost of an entry; an entry that alone exceeds half of all is not kept
   */
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
