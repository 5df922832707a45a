import { type IncomingMessage, ServerResponse } from "node:http"

// The platform passes any body of a raw response on; the parameters of Node.js are overloads.
type End = Parameters<ServerResponse["end"]>
type WriteHead = Parameters<ServerResponse["writeHead"]>

const isBytes = (body: unknown): body is string | Uint8Array =>
  typeof body === "string" || body instanceof Uint8Array

const BODILESS = [204, 304]

/** Head and body leave in one system call, with others of this turn: a write to an awake client is cheap. */
export class WholeResponse<
  Request extends IncomingMessage = IncomingMessage
> extends ServerResponse<Request> {
  #announced: number | undefined
  #held: ReadonlyArray<unknown> | undefined

  override writeHead(...given: ReadonlyArray<unknown>): this {
    const headers = given.at(-1)
    if (typeof headers === "object" && headers !== null && "content-length" in headers)
      this.#announced = Number(headers["content-length"])
    return super.writeHead(...(given as WriteHead))
  }

  override end(...given: ReadonlyArray<unknown>): this {
    this.leave()
    if (!this.#isWhole(given[0])) return super.end(...(given as End))
    // Node.js writes an empty piece after a body whose length it checks.
    this.strictContentLength = false
    this.#held = given
    if (waiting.push(this) === 1) setImmediate(leaveAll)
    return this
  }

  /** Whether nothing was written yet, and the body is the announced one. */
  #isWhole(body: unknown): boolean {
    return body === undefined
      ? BODILESS.includes(this.statusCode)
      : isBytes(body) && this.strictContentLength && Buffer.byteLength(body) === this.#announced
  }

  /** Writes the response now, if it waits for the others. */
  leave(): void {
    const given = this.#held
    if (given === undefined) return
    this.#held = undefined
    super.end(...(given as End))
  }
}

let waiting: Array<WholeResponse> = []

const leaveAll = () => {
  const responses = waiting
  waiting = []
  for (const response of responses) response.leave()
}
