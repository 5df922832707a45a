import { Latch } from "effect"

/** The progress of the current step of an installation, 0 to 1, in memory only; undefined: not known. */
export class LiveProgress {
  #share: number | undefined
  /** Opens with each new value. */
  readonly changed = Latch.makeUnsafe(false)

  get share(): number | undefined {
    return this.#share
  }

  set(share: number | undefined): void {
    if (share === this.#share) return
    this.#share = share
    if (share !== undefined) this.changed.openUnsafe()
  }
}
