/** Position of the lowest bit that is set; `word` is not 0. */
const lowest = (word: number): number => 31 - Math.clz32(word & -word)

/**
 * A set of whole numbers below a bound that finds the next member in constant time: a bitmap, and above it bitmaps
 * that say which words of the one below are not empty (four levels for 65,536 members, 32 to one).
 */
export class FreeSet {
  readonly #levels: ReadonlyArray<Uint32Array>
  #size = 0

  /** @param bound members are from 0 to `bound - 1` */
  constructor(bound: number) {
    const levels: Array<Uint32Array> = []
    let words = bound
    do {
      words = Math.max(1, Math.ceil(words / 32))
      levels.push(new Uint32Array(words))
    } while (words > 1)
    this.#levels = levels
  }

  get size(): number {
    return this.#size
  }

  has(member: number): boolean {
    return ((this.#levels[0]?.[member >>> 5] ?? 0) & (1 << (member & 31))) !== 0
  }

  add(member: number): void {
    if (this.has(member)) return
    this.#size += 1
    let index = member
    for (const level of this.#levels) {
      const word = index >>> 5
      const before = level[word] ?? 0
      level[word] = before | (1 << (index & 31))
      if (before !== 0) return
      index = word
    }
  }

  delete(member: number): void {
    if (!this.has(member)) return
    this.#size -= 1
    let index = member
    for (const level of this.#levels) {
      const word = index >>> 5
      const after = (level[word] ?? 0) & ~(1 << (index & 31))
      level[word] = after
      if (after !== 0) return
      index = word
    }
  }

  /** Returns the lowest member that is not below `from`; undefined: there is none. */
  next(from: number): number | undefined {
    let index = from
    for (let depth = 0; depth < this.#levels.length; depth++) {
      const word = index >>> 5
      const bits = (this.#levels[depth]?.[word] ?? 0) & (-1 << (index & 31))
      if (bits !== 0) return this.#descend(depth, word * 32 + lowest(bits))
      index = word + 1
    }
    return undefined
  }

  #descend(depth: number, index: number): number {
    let found = index
    for (let below = depth - 1; below >= 0; below--) {
      found = found * 32 + lowest(this.#levels[below]?.[found] ?? 1)
    }
    return found
  }
}
