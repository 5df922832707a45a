/** The progress of the current step of an installation, 0 to 1, in memory only; undefined: not known. */
export class LiveProgress {
  #share: number | undefined
  readonly #onChanged: () => void
  /** Whether there is a value that was not sent. */
  isChanged = false

  /** @param onChanged called with each new value */
  constructor(onChanged: () => void) {
    this.#onChanged = onChanged
  }

  get share(): number | undefined {
    return this.#share
  }

  set(share: number | undefined): void {
    if (share === this.#share) return
    this.#share = share
    if (share === undefined) return
    this.isChanged = true
    this.#onChanged()
  }
}
