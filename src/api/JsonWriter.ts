import { createHash } from "node:crypto"
import { SplitBody } from "./SplitBody.ts"

/** Characters of a buffer. */
const PART = 64 * 1024

const encoder = new TextEncoder()

/** Writes a JSON array or object of any length into several buffers. */
export class JsonWriter {
  readonly #close: string
  readonly #parts: Array<Uint8Array> = []
  readonly #hash = createHash("sha1")
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

  /** Returns the body with its weak `ETag`. */
  end(): { readonly body: SplitBody; readonly etag: string } {
    this.#text += this.#close
    this.#flush()
    return { body: new SplitBody(this.#parts), etag: `W/"${this.#hash.digest("base64url")}"` }
  }

  #flush(): void {
    const part = encoder.encode(this.#text)
    this.#parts.push(part)
    this.#hash.update(part)
    this.#text = ""
  }
}
