/** The lines of a console between two connections. Pure. */

/** Returns the index after the place in the stored lines that has the most equal lines before it, and their number. */
const place = (had: ReadonlyArray<string>, stored: ReadonlyArray<string>) => {
  let begin = 0
  let most = 0
  for (let end = stored.length; end > 0; end--) {
    let equal = 0
    while (equal < end && equal < had.length && stored[end - 1 - equal] === had[had.length - 1 - equal])
      equal++
    if (equal > most) {
      most = equal
      begin = end
    }
  }
  return { begin, most }
}

/**
 * Returns the stored lines that the reader lacks: the ones after the place with most equal lines before it. The newest
 * line of the reader may have grown.
 */
export const missingLines = (
  had: ReadonlyArray<string>,
  stored: ReadonlyArray<string>
): { readonly missing: ReadonlyArray<string>; readonly isContinuous: boolean } => {
  const exact = place(had, stored)
  const { begin, most } = exact.most > 0 ? exact : place(had.slice(0, -1), stored)
  return { missing: stored.slice(begin), isContinuous: most > 0 || had.length === 0 }
}

/** Drops lines that a new connection repeats. A possible repetition is held back until a later line decides. */
export class Repeats {
  readonly #missing: ReadonlyArray<string>
  /** The indices that the next line may have; none: nothing is repeated any more. */
  #next: ReadonlyArray<number>
  #held: Array<string> = []

  constructor(missing: ReadonlyArray<string>) {
    this.#missing = missing
    this.#next = missing.map((_, at) => at)
  }

  /** Returns the lines to deliver once this one has arrived. @param plain the line without ANSI sequences */
  take(line: string, plain: string): ReadonlyArray<string> {
    if (this.#next.length === 0) return [line]
    const matching = this.#next.filter((at) => this.#missing[at] === plain)
    if (matching.includes(this.#missing.length - 1)) {
      this.#next = []
      this.#held = []
      return []
    }
    this.#held.push(line)
    this.#next = matching.map((at) => at + 1)
    return this.#next.length > 0 ? [] : this.#held.splice(0)
  }
}
