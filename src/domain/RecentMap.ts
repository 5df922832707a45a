/**
 * A bounded cache of computed results: a full map begins anew. It replaces a `WeakMap`, whose entries the garbage collector
 * visits in a single pause.
 */
export class RecentMap<K, V> extends Map<K, V> {
  readonly #most: number

  /** @param most entries */
  constructor(most = 1_000) {
    super()
    this.#most = most
  }

  override set(key: K, value: V): this {
    if (this.size >= this.#most && !this.has(key)) this.clear()
    return super.set(key, value)
  }
}
