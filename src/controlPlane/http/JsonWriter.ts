/** A JSON text; a long one is encoded. */
export type JsonBody = string | Uint8Array

/** Characters of a part: what a connection holds of a streamed body whose peer does not read. */
const PART = 32 * 1024

const encoder = new TextEncoder()

/** Writes a JSON array or object of any length. */
export class JsonWriter {
  readonly #close: string
  readonly #parts: Array<Uint8Array> = []
  #text: string
  #isEmpty = true

  constructor(open: "[" | "{") {
    this.#text = open
    this.#close = open === "[" ? "]" : "}"
  }

  /** Adds an encoded value, or an encoded key with its value. */
  add(encoded: string): void {
    this.#text += this.#isEmpty ? encoded : `,${encoded}`
    this.#isEmpty = false
    if (this.#text.length > PART) this.#flush()
  }

  /** Removes a complete part from the body, if there is one, to send it before the rest. */
  take(): Uint8Array | undefined {
    return this.#parts.shift()
  }

  /** Returns the end of a body whose complete parts were taken. */
  rest(): Uint8Array {
    return encoder.encode(this.#text + this.#close)
  }

  /** Returns the body, in steps: a body may have hundreds of megabytes. */
  *end(): Generator<void, JsonBody> {
    this.#text += this.#close
    if (this.#parts.length === 0) return this.#text
    this.#flush()
    const body = Buffer.allocUnsafeSlow(this.#parts.reduce((sum, part) => sum + part.length, 0))
    let at = 0
    for (const part of this.#parts) {
      body.set(part, at)
      at += part.length
      yield
    }
    return body
  }

  #flush(): void {
    this.#parts.push(encoder.encode(this.#text))
    this.#text = ""
  }
}
