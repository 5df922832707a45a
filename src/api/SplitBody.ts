/** A response body of several buffers, which several bodies may share: the response writes them without a copy. */
export class SplitBody {
  readonly parts: ReadonlyArray<Uint8Array>
  /** Bytes. */
  readonly length: number
  /** Whether other bodies share its buffers, so that it takes no memory of its own. */
  readonly isShared: boolean

  constructor(parts: ReadonlyArray<Uint8Array>, isShared = false) {
    this.parts = parts
    this.isShared = isShared
    this.length = parts.reduce((sum, part) => sum + part.length, 0)
  }

  /** Returns a copy of all bytes, or the only buffer. */
  joined(): Uint8Array {
    const [first = new Uint8Array(), ...more] = this.parts
    return more.length === 0 ? first : Buffer.concat(this.parts)
  }
}
