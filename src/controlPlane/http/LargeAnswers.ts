import { Context, type Duration, type Effect } from "effect"
import type { HttpServerRequest, HttpServerResponse } from "effect/http"
import { Unavailable } from "../../contract/domain/errors.ts"
import type { Principal } from "./Principal.ts"

export const tooManyUnread = new Unavailable({
  detail: "the API key has too many large responses that are not read yet",
  hint: "Read the responses, or send fewer large requests at the same time."
})

export const tooManyInProgress = new Unavailable({
  detail: "the API key has too many requests in progress",
  hint: "Send fewer requests at the same time, and read their responses."
})

/** Bounds the connections of a key and its unread large responses; streams have their own bounds. Default: unbounded. */
export const LargeAnswers = Context.Reference<{
  /** Waits for room for `bytes`, then runs the handler; without room in time, dies with `Unavailable`. */
  making(bytes: number): <A, E, R>(handler: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  /** Counts a request until its response has left; false: the key has too many in progress. */
  admit(request: HttpServerRequest.HttpServerRequest, principal: Principal | undefined): boolean
  /**
   * Counts a response until the peer has read it; false: there is no room for it.
   * @param patience time without progress after which the connection is closed; default: that of all responses
   */
  begin(
    request: HttpServerRequest.HttpServerRequest,
    response: HttpServerResponse.HttpServerResponse,
    principal: Principal | undefined,
    patience?: Duration.Duration
  ): boolean
}>("muster/api/LargeAnswers", {
  defaultValue: () => ({ making: () => (handler) => handler, admit: () => true, begin: () => true })
})

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
