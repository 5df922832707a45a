/** A deviation of the wall clock that must hold before it is trusted, in milliseconds. */
const JUMP_MILLIS = 3_600_000
/** The time that it must hold, in milliseconds. */
const HOLD_MILLIS = 600_000

/** A reading of the time. */
export interface Look {
  /** The trusted time of day, in milliseconds since the epoch. */
  readonly millis: number
  /** The change that this reading is the first to see. */
  readonly news?: "jumped" | "accepted" | "returned"
  /** How far the wall clock is ahead of `millis`, in milliseconds; negative: behind. */
  readonly ahead: number
}

/**
 * The time of day from a wall clock, which can be set, and a monotonic clock, which cannot. A jump of more than an
 * hour, forwards or back, counts once it has held for ten minutes; until then the earlier time continues. Pure.
 */
export class TrustedTime {
  /** Time of day minus the monotonic clock. */
  #offset: number
  /** A jump that has not held long enough. */
  #jump: { readonly offset: number; readonly since: number } | undefined

  /** @param known the last time of day that is known to be right */
  constructor(known: number, monotonic: number) {
    this.#offset = known - monotonic
  }

  /** Whether the wall clock is not trusted now. */
  get isHeld(): boolean {
    return this.#jump !== undefined
  }

  look(wall: number, monotonic: number): Look {
    const offset = wall - monotonic
    const ahead = offset - this.#offset
    if (Math.abs(ahead) <= JUMP_MILLIS) {
      const returned = this.#jump !== undefined
      this.#jump = undefined
      this.#offset = offset
      return { millis: wall, ahead: 0, ...(returned ? { news: "returned" } : {}) }
    }
    const before = this.#jump
    if (before === undefined || Math.abs(offset - before.offset) > JUMP_MILLIS) {
      this.#jump = { offset, since: monotonic }
      return { millis: this.#offset + monotonic, ahead, news: "jumped" }
    }
    if (monotonic - before.since < HOLD_MILLIS) return { millis: this.#offset + monotonic, ahead }
    this.#jump = undefined
    this.#offset = offset
    return { millis: wall, ahead: 0, news: "accepted" }
  }
}
