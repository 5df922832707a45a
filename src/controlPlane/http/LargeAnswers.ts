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
