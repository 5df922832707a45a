/** Random numbers that a seed repeats. */
export interface Random {
  readonly seed: number
  /** A whole number from 0 to before `below`. */
  readonly below: (below: number) => number
  readonly pick: <A>(items: readonly [A, ...ReadonlyArray<A>]) => A
}

/** Mulberry32: small, and good enough to choose what a test does next. */
export const seeded = (seed: number): Random => {
  let state = seed >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296
  }
  const below = (limit: number) => Math.floor(next() * limit)
  return { seed, below, pick: (items) => items[below(items.length)] ?? items[0] }
}

/** A seed of its own for each run, or the one of an earlier run that is to be repeated: MUSTER_TEST_SEED. */
export const freshSeed = (): number => Number(process.env.MUSTER_TEST_SEED ?? Date.now() % 1_000_000)
