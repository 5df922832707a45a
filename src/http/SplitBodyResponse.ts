import { type IncomingMessage, ServerResponse } from "node:http"
import { SplitBody } from "../api/SplitBody.ts"

type End = ServerResponse["end"]

/** A response whose `end` takes a {@link SplitBody}; its head and all buffers leave in one system call. */
export class SplitBodyResponse<
  Request extends IncomingMessage = IncomingMessage
> extends ServerResponse<Request> {
  // The overloads of `end`, and the body of a raw response, which the platform passes on.
  override end(...given: ReadonlyArray<unknown>): this {
    const [body, ...more] = given
    if (!(body instanceof SplitBody)) return super.end(...(given as Parameters<End>))
    this.cork()
    for (const part of body.parts) this.write(part)
    return super.end(...(more as Parameters<End>))
  }
}
