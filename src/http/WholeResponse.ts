import { type IncomingMessage, ServerResponse } from "node:http"
import { SplitBody } from "../api/SplitBody.ts"

// The platform passes any body of a raw response on; the parameters of Node.js are overloads.
type End = Parameters<ServerResponse["end"]>
type WriteHead = Parameters<ServerResponse["writeHead"]>

const isBytes = (body: unknown): body is string | Uint8Array =>
  typeof body === "string" || body instanceof Uint8Array

/** A response whose head and whole body leave in one system call, also those of a {@link SplitBody}. */
export class WholeResponse<
  Request extends IncomingMessage = IncomingMessage
> extends ServerResponse<Request> {
  #announced: string | undefined

  override writeHead(...given: ReadonlyArray<unknown>): this {
    const headers = given.at(-1)
    if (typeof headers === "object" && headers !== null && "content-length" in headers)
      this.#announced = String(headers["content-length"])
    return super.writeHead(...(given as WriteHead))
  }

  override end(...given: ReadonlyArray<unknown>): this {
    const [body, ...more] = given
    if (body instanceof SplitBody) {
      this.cork()
      for (const part of body.parts) this.write(part)
      return super.end(...(more as End))
    }
    // Node.js writes an empty piece after a body whose length it checks.
    if (this.strictContentLength && isBytes(body) && String(Buffer.byteLength(body)) === this.#announced)
      this.strictContentLength = false
    return super.end(...(given as End))
  }
}
