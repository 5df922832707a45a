/** Position of the lowest bit that is set; `word` is not 0. */
const lowest = (word: number): number => 31 - Math.clz32(word & -word)

/** Number of bits that are set. */
const bitCount = (word: number): number => {
  const pairs = word - ((word >>> 1) & 0x55555555)
  const fours = (pairs & 0x33333333) + ((pairs >>> 2) & 0x33333333)
  return Math.imul((fours + (fours >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
}

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

  /** Adds the members from `first` to `last`, 32 at a time. */
  addRange(first: number, last: number): void {
    let [from, to] = [first, last]
    for (const [depth, level] of this.#levels.entries()) {
      for (let word = from >>> 5; word <= to >>> 5; word++) {
        const low = word === from >>> 5 ? from & 31 : 0
        const high = word === to >>> 5 ? to & 31 : 31
        const bits = (-1 << low) & (-1 >>> (31 - high))
        const before = level[word] ?? 0
        if (depth === 0) this.#size += bitCount(bits & ~before)
        level[word] = before | bits
      }
      from >>>= 5
      to >>>= 5
    }
  }

  /** Removes a member; false: it is none. */
  delete(member: number): boolean {
    if (!this.has(member)) return false
    this.#size -= 1
    let index = member
    for (const level of this.#levels) {
      const word = index >>> 5
      const after = (level[word] ?? 0) & ~(1 << (index & 31))
      level[word] = after
      if (after !== 0) return true
      index = word
    }
    return true
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
