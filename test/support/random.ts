/** Pseudo-random numbers that a seed reproduces. */
export interface Random {
  readonly seed: number
  /** Returns an integer from 0 to `below` - 1. */
  readonly below: (below: number) => number
  readonly pick: <A>(items: readonly [A, ...ReadonlyArray<A>]) => A
}

/** Mulberry32: small, and sufficient for the choices of a test. */
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

/** A new seed for each run, or MUSTER_TEST_SEED to repeat an earlier run. */
export const freshSeed = (): number => Number(process.env.MUSTER_TEST_SEED ?? Date.now() % 1_000_000)
